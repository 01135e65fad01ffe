/* What doctor finds out about GPUs and links, and its report. */
#include "tests/trainer/doctor_fixture.h"

#include "base/clock.h"
#include "dist/net/net.h"
#include "trainer/tools/doctor/collect_impl.h"
#include "trainer/tools/doctor/doctor.h"
#include "trainer/tools/doctor/probe.h"

static void put_file(const char *dir, const char *name, const char *text)
{
	char *path = ct_path_join(dir, name);

	assert_ok(ct_file_replace(path, text, strlen(text)));
	ct_free(path);
}

static void add_gpu(const char *slot, const char *vendor, const char *class, bool driver)
{
	char *dir = ct_strfmt("%s/sys/bus/pci/devices/%s", tmpdir, slot);
	char *known = ct_strfmt("%s/proc/driver/nvidia/gpus/%s", tmpdir, slot);

	assert_ok(ct_dir_make(dir));
	put_file(dir, "vendor", vendor);
	put_file(dir, "class", class);
	if (driver)
		assert_ok(ct_dir_make(known));
	ct_free(known);
	ct_free(dir);
}

/* `nvidia-smi` shows 7 GPUs instead of 8. */
static void test_row_117_seven_of_eight(void **state)
{
	struct ct_facts f = {0};
	char slot[32];

	(void)state;
	for (int i = 0; i < 8; i++) {
		snprintf(slot, sizeof(slot), "0000:%02x:00.0", 16 + i);
		add_gpu(slot, "0x10de\n", i < 4 ? "0x030000\n" : "0x030200\n", i != 5);
	}
	add_gpu("0000:01:00.0", "0x8086\n", "0x020000\n", false); /* a network adapter */
	add_gpu("0000:02:00.0", "0x10de\n", "0x040300\n", false); /* the sound device of a GPU */
	ct__collect_gpus(in_tmpdir("sys"), in_tmpdir("proc"), &f);
	assert_int_equal(f.gpus_pci, 8);
	assert_int_equal(f.gpus_driver, 7);
	assert_string_equal(f.lost_slots, "0000:15:00.0");
}

static void test_xid(void **state)
{
	char out[160];

	(void)state;
	ct__find_xid("4,1,2,-;usb 1-1: new device\n6,2,3,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=9, MMU Fault\n"
		     "6,3,4,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n6,4,5,-;other\n",
		     out, sizeof(out));
	assert_string_equal(out, "Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.");
	out[0] = '\0';
	ct__find_xid("6,4,5,-;other\n", out, sizeof(out));
	assert_string_equal(out, "");
}

/* Clients that connect and send nothing, such as port scanners, come before the real one. */
static void test_silent_clients(void **state)
{
	static const char nonce[CT_PROBE_NONCE] = "nonce";
	const struct ct_port_range any = {0};
	struct ct_link_facts link;
	ct_probe_listener *l;
	int silent[2], err;

	(void)state;
	assert_ok(ct_probe_listen(1, nonce, &any, &l));
	for (int i = 0; i < 2; i++)
		assert_ok(ct_net_connect("127.0.0.1", ct_probe_port(l), ct_deadline_in(20 * CT_SEC), &silent[i], &err));
	ct_probe_connect("127.0.0.1", ct_probe_port(l), 1, nonce, 0, &link);
	assert_string_equal(link.error, "");
	assert_true(link.reached);
	for (int i = 0; i < 2; i++)
		ct_net_close(&silent[i]);
	ct_probe_close(l);
}

/* With many nodes, not every link is measured, and there is no matrix. */
static void test_row_112_measured_links(void **state)
{
	enum { MANY = 40 };
	struct ct_link_facts *links = CT_NEW_ARRAY(struct ct_link_facts, MANY * MANY);
	struct ct_facts *nodes = CT_NEW_ARRAY(struct ct_facts, MANY);
	struct ct_doctor d = {.cluster = {.nodes = nodes, .links = links, .n = MANY}};
	struct ct_str text = {0};
	int64_t n, all;
	struct planted p;

	(void)state;
	make_healthy(&p);
	ct_doctor_text(&(struct ct_doctor){.cluster = p.cluster}, &text);
	assert_non_null(strstr(ct_str_text(&text), "from 2     1000     1000     -"));
	assert_null(strstr(ct_str_text(&text), "links between nodes"));

	p.links[1].tried = p.links[1].reached = false;
	ct_str_clear(&text);
	ct_doctor_text(&(struct ct_doctor){.cluster = p.cluster}, &text);
	assert_non_null(strstr(ct_str_text(&text), "\n5 of 6 links between nodes were measured"));

	assert_true(nodes && links);
	for (int i = 0; i < MANY; i++) {
		make_node(&nodes[i], i);
		for (int k = 1; k <= 31; k++)
			links[i * MANY + (i + k) % MANY].tried = true;
	}
	ct_str_clear(&text);
	ct_doctor_text(&d, &text);
	assert_non_null(strstr(ct_str_text(&text), "\n1240 of 1560 links between nodes were measured"));
	assert_non_null(strstr(ct_str_text(&text), "--json lists them"));
	ct_str_release(&text);

	ct_json *j = ct_doctor_json(&d);
	assert_ok(ct_json_get_i64(j, "links_measured", &n));
	assert_ok(ct_json_get_i64(j, "links_total", &all));
	assert_int_equal(n, 1240);
	assert_int_equal(all, 1560);
	ct_json_destroy(j);
	ct_free(links);
	ct_free(nodes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_row_117_seven_of_eight),
		cmocka_unit_test(test_xid),
		cmocka_unit_test(test_silent_clients),
		cmocka_unit_test(test_row_112_measured_links),
	};

	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
