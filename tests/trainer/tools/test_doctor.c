/* Judging of facts: a healthy set of three nodes has no findings, and each planted fault has exactly one, with the
 * check, the node, the exit code and the remedy that belong to it. The names of rows are those of the tutorials'
 * mistakes. */
#include "tests/trainer/doctor_fixture.h"

#include "trainer/tools/doctor/checks.h"
#include "trainer/tools/doctor/facts_json.h"

/* ---- faults */

static void plant_missing(struct planted *p)
{
	p->nodes[2] = (struct ct_facts){0};
}
static void plant_row_104_nested_launch(struct planted *p)
{
	SET(p->nodes[1].launcher, "slurm");
	p->nodes[1].tasks_here = 4;
	p->nodes[1].slurm_node = 1;
	p->nodes[1].asks_for_ranks = true;
}
static void plant_trap_6_unexported_node_rank(struct planted *p)
{
	p->nodes[1].slurm_node = 2;
}
static void plant_other_number_of_nodes(struct planted *p)
{
	p->nodes[2].n_nodes = 2;
}
static void plant_trap_3_cuda_visible_device(struct planted *p)
{
	SET(p->nodes[0].names[0].name, "CUDA_VISIBLE_DEVICE");
	SET(p->nodes[0].names[0].meant, "CUDA_VISIBLE_DEVICES");
	p->nodes[0].n_names = 1;
}
static void plant_trap_8_interface(struct planted *p)
{
	struct ct_setting_facts *s = &p->nodes[2].settings[p->nodes[2].n_settings++];

	SET(s->name, "NCCL_SOCKET_IFNAME");
	SET(s->why, "NCCL_SOCKET_IFNAME=ens3 (in my case) selects no network interface of this host (it has eth0)");
	SET(s->hint, "did you mean eth0?");
	s->wrong = true;
}
static void plant_row_27_master_not_local(struct planted *p)
{
	SET(p->nodes[0].master_addr, "10.0.0.9");
	p->nodes[0].master_here = false;
}
static void plant_unknown_master(struct planted *p)
{
	p->nodes[2].master_addr[0] = '\0';
	SET(p->nodes[2].master_error, "Name or service not known");
}
static void plant_row_37_own_name_is_loopback(struct planted *p)
{
	SET(p->nodes[1].own_addr, "127.0.1.1");
}
static void plant_row_37_master_is_loopback(struct planted *p)
{
	SET(p->nodes[1].master_addr, "127.0.1.1");
	p->nodes[1].master_here = true;
}
static void plant_ipv6_only(struct planted *p)
{
	struct ct_facts *f = &p->nodes[2];

	SET(f->addrs[1].addr, "2001:db8::3");
	f->addrs[1].ipv6 = true;
	SET(f->source, "2001:db8::3");
	SET(f->own_addr, "2001:db8::3");
}
static void plant_docker0(struct planted *p)
{
	add_addr(&p->nodes[0], "docker0", "172.17.0.1");
	add_addr(&p->nodes[1], "docker0", "172.17.0.1");
}
static void plant_docker0_without_another(struct planted *p)
{
	plant_docker0(p);
	p->nodes[1].source[0] = '\0';
}
static void plant_bridge(struct planted *p)
{
	add_addr(&p->nodes[0], "virbr0", "192.168.122.1");
	add_addr(&p->nodes[1], "virbr0", "192.168.122.1");
}
static void plant_same_address(struct planted *p)
{
	SET(p->nodes[2].addrs[1].addr, "10.0.0.2");
	SET(p->nodes[2].source, "10.0.0.2");
}
static void plant_slow_resolver(struct planted *p)
{
	p->nodes[1].resolve_s = 10;
}
static void plant_row_8_busy_port(struct planted *p)
{
	SET(p->nodes[0].port_error, "cannot serve the store on port 29400: the port is in use by pid 4711 (python3)");
}
static void plant_row_113_no_route(struct planted *p)
{
	p->links[1 * N + 2].reached = false;
	SET(p->links[1 * N + 2].error, "No route to host");
	p->links[1 * N + 2].reason = CT_REASON_NO_ROUTE;
}
static void plant_row_119_firewall(struct planted *p)
{
	p->links[0 * N + 1].reached = false;
	SET(p->links[0 * N + 1].error, "Connection timed out");
}
static void plant_rejected(struct planted *p)
{
	p->links[2 * N + 1].reached = false;
	SET(p->links[2 * N + 1].error, "Connection refused");
	p->links[2 * N + 1].reason = CT_REASON_REJECTED;
}
static void plant_slow_link(struct planted *p)
{
	p->links[1 * N + 0].mib_per_s = 11;
}
static void plant_mtu(struct planted *p)
{
	p->nodes[1].addrs[1].mtu = 9000;
}
static void plant_clock(struct planted *p)
{
	p->links[0 * N + 2].ahead_s = -30;
}
static void plant_open_files(struct planted *p)
{
	p->nodes[0].open_files_most = 32;
}
static void plant_row_107_locked_memory(struct planted *p)
{
	p->nodes[1].locked_bytes = 65536;
	p->nodes[1].in_container = true;
}
static void plant_row_107_shared_memory(struct planted *p)
{
	p->nodes[2].shm_bytes = 1 * MIB;
	p->nodes[2].in_container = true;
}
static void plant_cpus(struct planted *p)
{
	p->nodes[0].cpus = 2;
}
static void plant_read_only(struct planted *p)
{
	SET(p->nodes[0].run_error, "cannot create runs/.probe: Read-only file system");
}
static void plant_full_disk(struct planted *p)
{
	p->nodes[0].run_free_bytes = 10 * MIB;
}
static void plant_slow_disk(struct planted *p)
{
	p->nodes[0].run_mib_per_s = 0.5;
}
static void plant_row_96_not_shared(struct planted *p)
{
	p->nodes[1].run_sharing = CT_SHARING_NO;
}
static void plant_no_locks(struct planted *p)
{
	p->nodes[2].run_sharing = CT_SHARING_NO_LOCK;
}
static void plant_no_data(struct planted *p)
{
	SET(p->nodes[2].data_error, "data.dir: /data/mnist does not exist");
	p->nodes[2].data_status = CT_NOT_FOUND;
}
static void plant_version(struct planted *p)
{
	SET(p->nodes[1].version, "0.9");
	SET(p->nodes[1].build, "0.9-abc");
}
static void plant_build(struct planted *p)
{
	SET(p->nodes[1].build, "1.0-def");
}
static void plant_libraries(struct planted *p)
{
	SET(p->nodes[1].libraries, "oneDNN 2.6");
}
static void plant_nccl_defect(struct planted *p)
{
	SET(p->nodes[1].nccl_defect, "NCCL 2.28.3 may compute wrong sums");
	SET(p->nodes[1].nccl_remedy, "set dist.nccl_windows=false, or install NCCL 2.30.7 or later");
}
static void plant_config(struct planted *p)
{
	SET(p->nodes[2].config, "5678");
}
static void plant_row_116_few_gpus(struct planted *p)
{
	p->nodes[1].gpus_wanted = 8;
	p->nodes[1].gpus_visible = 4;
	SET(p->nodes[1].visible_devices, "0,1,2,3");
}
static void plant_row_117_lost_gpu(struct planted *p)
{
	p->nodes[2].gpus_driver = p->nodes[2].gpus_visible = 7;
	SET(p->nodes[2].lost_slots, "0000:3b:00.0");
}
static void plant_row_107_container_is_node_0(struct planted *p)
{
	plant_row_27_master_not_local(p);
	p->nodes[0].in_container = true;
}
static void plant_row_107_container_not_reached(struct planted *p)
{
	plant_rejected(p);
	p->nodes[1].in_container = true;
}
static void plant_row_107_containers_with_one_address(struct planted *p)
{
	plant_same_address(p);
	p->nodes[2].in_container = true;
}
static void plant_slow_data(struct planted *p)
{
	p->nodes[2].data_mib_per_s = 3;
}
static void plant_xid(struct planted *p)
{
	SET(p->nodes[0].xid, "Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.");
}

static const struct {
	void (*plant)(struct planted *p);
	const char *check;
	int node; /* -1: the whole run */
	enum ct_severity severity;
	enum ct_status status;
	const char *fix;
} faults[] = {
	{plant_missing, "missing-node", -1, CT_FINDING_ERROR, CT_TIMEOUT, "--node-rank 2"},
	{plant_row_104_nested_launch, "nested-launch", 1, CT_FINDING_ERROR, CT_USAGE, "remove --procs"},
	{plant_trap_6_unexported_node_rank, "node-rank", 1, CT_FINDING_ERROR, CT_USAGE, "remove --node-rank"},
	{plant_other_number_of_nodes, "node-rank", 2, CT_FINDING_ERROR, CT_USAGE, "--nodes 3"},
	{plant_trap_3_cuda_visible_device, "env-names", 0, CT_FINDING_WARNING, CT_USAGE,
	 "export CUDA_VISIBLE_DEVICES=\"$CUDA_VISIBLE_DEVICE\""},
	{plant_trap_8_interface, "settings", 2, CT_FINDING_ERROR, CT_CONFIG, "did you mean eth0?"},
	{plant_row_27_master_not_local, "master-address", 0, CT_FINDING_ERROR, CT_USAGE, "--master-addr 10.0.0.1"},
	{plant_unknown_master, "master-address", 2, CT_FINDING_ERROR, CT_COMM, "echo '10.0.0.1 hosta' >> /etc/hosts"},
	{plant_row_37_own_name_is_loopback, "loopback-name", 1, CT_FINDING_WARNING, CT_COMM,
	 "$a 10.0.0.2 hostb' /etc/hosts"},
	{plant_row_37_master_is_loopback, "loopback-name", 1, CT_FINDING_ERROR, CT_COMM, "--master-addr 10.0.0.1"},
	{plant_ipv6_only, "address-family", 2, CT_FINDING_ERROR, CT_COMM, "ip addr add"},
	{plant_docker0, "duplicate-address", 1, CT_FINDING_NOTE, CT_COMM, "NCCL_SOCKET_IFNAME=^docker0"},
	{plant_docker0_without_another, "duplicate-address", 1, CT_FINDING_WARNING, CT_COMM,
	 "NCCL_SOCKET_IFNAME=^docker0"},
	{plant_bridge, "duplicate-address", 1, CT_FINDING_WARNING, CT_COMM, "NCCL_SOCKET_IFNAME=^virbr0"},
	{plant_same_address, "duplicate-address", 2, CT_FINDING_ERROR, CT_COMM, "ip addr del 10.0.0.2 dev eth0"},
	{plant_slow_resolver, "slow-resolver", 1, CT_FINDING_WARNING, CT_COMM, "/etc/resolv.conf"},
	{plant_row_8_busy_port, "port", 0, CT_FINDING_ERROR, CT_COMM, "--master-port 29401"},
	{plant_row_113_no_route, "reachability", 1, CT_FINDING_ERROR, CT_COMM, "ip route get 10.0.0.3"},
	{plant_row_119_firewall, "reachability", 0, CT_FINDING_ERROR, CT_COMM, "allow TCP from all nodes on hostb"},
	{plant_rejected, "reachability", 2, CT_FINDING_ERROR, CT_COMM, "a firewall on hostb rejects"},
	{plant_slow_link, "bandwidth", 1, CT_FINDING_WARNING, CT_COMM, "ethtool"},
	{plant_mtu, "mtu", 1, CT_FINDING_WARNING, CT_COMM, "mtu 1500"},
	{plant_clock, "clock", 2, CT_FINDING_WARNING, CT_IO, "chronyc makestep"},
	{plant_open_files, "open-files", 0, CT_FINDING_ERROR, CT_NOMEM, "ulimit -Hn 4096"},
	{plant_row_107_locked_memory, "locked-memory", 1, CT_FINDING_WARNING, CT_NOMEM, "--ulimit memlock=-1"},
	{plant_row_107_shared_memory, "shared-memory", 2, CT_FINDING_ERROR, CT_NOMEM, "--shm-size=1g"},
	{plant_cpus, "cpus", 0, CT_FINDING_WARNING, CT_CONFIG, "launch.threads=auto"},
	{plant_read_only, "run-directory", 0, CT_FINDING_ERROR, CT_IO, "run.dir=PATH"},
	{plant_full_disk, "disk-space", 0, CT_FINDING_ERROR, CT_IO, "checkpoint.keep_last"},
	{plant_slow_disk, "disk-speed", 0, CT_FINDING_WARNING, CT_IO, "faster file system"},
	{plant_row_96_not_shared, "run-shared", 1, CT_FINDING_ERROR, CT_IO, "file system that all nodes mount"},
	{plant_no_locks, "locks", 2, CT_FINDING_WARNING, CT_IO, "nolock"},
	{plant_no_data, "data", 2, CT_FINDING_ERROR, CT_NOT_FOUND, "data.dir"},
	{plant_version, "version", 1, CT_FINDING_ERROR, CT_MISMATCH, "install ctrain 1.0 on hostb"},
	{plant_build, "build", 1, CT_FINDING_WARNING, CT_MISMATCH, "copy the program"},
	{plant_libraries, "libraries", 1, CT_FINDING_WARNING, CT_MISMATCH, "same versions on hostb"},
	{plant_nccl_defect, "nccl-defect", 1, CT_FINDING_ERROR, CT_UNSUPPORTED, "dist.nccl_windows=false"},
	{plant_config, "config", 2, CT_FINDING_ERROR, CT_MISMATCH, "ctrain config dump"},
	{plant_row_116_few_gpus, "devices", 1, CT_FINDING_ERROR, CT_NO_DEVICE, "CUDA_VISIBLE_DEVICES=0,1,2,3"},
	{plant_row_117_lost_gpu, "lost-gpu", 2, CT_FINDING_ERROR, CT_DEVICE, "reboot the host"},
	{plant_row_107_container_is_node_0, "master-address", 0, CT_FINDING_ERROR, CT_USAGE, "--network host"},
	{plant_row_107_container_not_reached, "reachability", 2, CT_FINDING_ERROR, CT_COMM, "--network host"},
	{plant_row_107_containers_with_one_address, "duplicate-address", 2, CT_FINDING_ERROR, CT_COMM,
	 "--network host"},
	{plant_slow_data, "disk-speed", 2, CT_FINDING_WARNING, CT_IO, "local disk"},
	{plant_xid, "xid", 0, CT_FINDING_WARNING, CT_DEVICE, "nvidia-smi --gpu-reset"},
};

static void print_findings(const struct ct_findings *list)
{
	struct ct_str text = {0};

	ct_findings_text(list, &text);
	print_error("%s", ct_str_text(&text));
	ct_str_release(&text);
}

static void test_healthy(void **state)
{
	struct ct_findings found = {0};
	struct planted p;

	(void)state;
	make_healthy(&p);
	assert_ok(ct_checks_run(&p.cluster, &found));
	print_findings(&found);
	assert_int_equal(found.n, 0);
	assert_int_equal(ct_findings_worst(&found), CT_OK);
	ct_findings_release(&found);
}

static void test_planted_faults(void **state)
{
	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(faults); i++) {
		struct ct_findings found = {0};
		const struct ct_finding *f;
		struct planted p;

		make_healthy(&p);
		faults[i].plant(&p);
		assert_ok(ct_checks_run(&p.cluster, &found));
		f = found.all;
		if (found.n != 1 || strcmp(f->check, faults[i].check) != 0 || f->node != faults[i].node ||
		    f->severity != faults[i].severity || f->status != faults[i].status ||
		    !strstr(f->fix, faults[i].fix) || !f->what[0] || !f->why[0]) {
			print_findings(&found);
			fail_msg("fault %zu: expected one finding of %s on node %d (%s) with \"%s\"", i,
				 faults[i].check, faults[i].node, ct_status_name(faults[i].status), faults[i].fix);
		}
		/* The strings fit. */
		assert_false(ct_ends_with(f->what, "..."));
		assert_false(ct_ends_with(f->why, "..."));
		assert_false(ct_ends_with(f->fix, "..."));
		assert_int_equal(ct_findings_worst(&found), f->severity == CT_FINDING_NOTE ? CT_OK : faults[i].status);
		ct_findings_release(&found);
	}
}

/* GPUs do not matter to a run on CPUs. */
static void test_lost_gpu_of_a_cpu_run(void **state)
{
	struct ct_findings found = {0};
	struct planted p;

	(void)state;
	make_healthy(&p);
	plant_row_117_lost_gpu(&p);
	SET(p.nodes[2].device, "cpu");
	assert_ok(ct_checks_run(&p.cluster, &found));
	assert_int_equal(found.n, 0);
	ct_findings_release(&found);
}

/* Every check finds at least one of the planted faults. */
static void test_every_check_is_planted(void **state)
{
	(void)state;
	for (size_t k = 0; ct_check_at(k); k++) {
		bool planted = false;

		for (size_t i = 0; i < CT_ARRAY_LEN(faults); i++)
			planted = planted || strcmp(faults[i].check, ct_check_at(k)->name) == 0;
		if (!planted)
			fail_msg("no fault is planted for %s", ct_check_at(k)->name);
	}
}

static void test_worst_is_the_first_error(void **state)
{
	struct ct_findings found = {0};
	struct planted p;

	(void)state;
	make_healthy(&p);
	plant_trap_3_cuda_visible_device(&p); /* a warning of an early check */
	plant_full_disk(&p);
	plant_config(&p);
	assert_ok(ct_checks_run(&p.cluster, &found));
	assert_int_equal(found.n, 3);
	assert_string_equal(found.all[0].check, "disk-space");
	assert_string_equal(found.all[1].check, "config");
	assert_string_equal(found.all[2].check, "env-names");
	assert_int_equal(ct_findings_worst(&found), CT_IO);
	assert_int_equal(ct_findings_count(&found, CT_FINDING_ERROR), 2);
	ct_findings_release(&found);
}

static void test_facts_as_json(void **state)
{
	struct planted p;

	(void)state;
	make_healthy(&p);
	for (size_t i = 0; i < CT_ARRAY_LEN(faults); i++)
		faults[i].plant(&p);
	for (int i = 0; i < N; i++) {
		struct ct_str text = {0};
		struct ct_facts copy;
		ct_json *j = ct_facts_json(&p.nodes[i]), *parsed;

		assert_ok(ct_json_dump(j, false, &text));
		assert_ok(ct_json_parse(ct_str_text(&text), text.len, "facts", &parsed));
		assert_ok(ct_facts_parse(parsed, &copy));
		assert_int_equal(copy.n_settings, p.nodes[i].n_settings);
		/* Unused bytes of strings may differ, so compare what is written. */
		ct_json *again = ct_facts_json(&copy);
		struct ct_str second = {0};
		assert_ok(ct_json_dump(again, false, &second));
		assert_string_equal(ct_str_text(&second), ct_str_text(&text));
		ct_str_release(&second);
		ct_json_destroy(again);
		ct_json_destroy(parsed);
		ct_json_destroy(j);
		ct_str_release(&text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_healthy),
		cmocka_unit_test(test_planted_faults),
		cmocka_unit_test(test_lost_gpu_of_a_cpu_run),
		cmocka_unit_test(test_every_check_is_planted),
		cmocka_unit_test(test_worst_is_the_first_error),
		cmocka_unit_test(test_facts_as_json),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
