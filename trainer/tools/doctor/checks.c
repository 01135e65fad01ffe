/* The table determines the order of the findings: causes come before their consequences, so that the first error is
 * what should be repaired first. A check sees facts only, and nodes that have not reported are skipped for it, except
 * in checks of all nodes at once. Adding a check means adding a row; its name is set here, after it has run, so it
 * cannot be wrong. */
#include "trainer/tools/doctor/checks.h"

#include "trainer/tools/doctor/checks_impl.h"

/* In the order in which findings are reported: causes before their consequences. */
static const struct ct_check checks[] = {
	{"missing-node", "A node of the run has not reported.",
	 "Start `ctrain doctor` with the same options on every node, with --node-rank 0, 1, ...",
	 .judge = ct__check_missing},
	{"nested-launch",
	 "A launcher (Slurm, mpirun, torchrun) has started one process per rank, and each of these would start ranks again.",
	 "Remove --procs and --nodes, or start one task per node.", .judge_node = ct__check_nested},
	{"node-rank",
	 "The node rank on the command line is not the one that Slurm assigned, or two nodes have the same node rank.",
	 "Inside srun, do not pass --node-rank: a batch script expands `$SLURM_NODEID` on the first node, where it is 0.",
	 .judge_node = ct__check_node_rank, .compare = ct__check_n_nodes},
	{"env-names",
	 "The name of an environment variable resembles that of a variable that ctrain, CUDA or NCCL reads, for example CUDA_VISIBLE_DEVICE.",
	 "Rename the variable.", .judge_node = ct__check_names},
	{"settings",
	 "A setting of NCCL or gloo (NCCL_*, GLOO_*) is wrong on this host, for example a network interface that does not exist.",
	 "Correct or unset the variable; `ctrain info` lists the variables that are set.",
	 .judge_node = ct__check_settings},
	{"master-address",
	 "A node cannot resolve the master address, or node 0 runs on a host that does not have this address.",
	 "Pass an address of node 0 to --master-addr on every node; containers: --network host.",
	 .judge = ct__check_master},
	{"loopback-name", "A host name resolves to 127.0.1.1 or another loopback address, as in Debian's /etc/hosts.",
	 "Use a numeric address, or write the address of the host's network interface into /etc/hosts.",
	 .judge = ct__check_loopback},
	{"address-family",
	 "Nodes have no address family (IPv4, IPv6) in common, or the master address belongs to a family that a node does not have.",
	 "Use an address of the family that all nodes have.", .compare = ct__check_family},
	{"duplicate-address",
	 "Two nodes have the same address on a network interface, for example 172.17.0.1 on docker0.",
	 "Exclude the interface with dist.iface, NCCL_SOCKET_IFNAME=^docker0 or GLOO_SOCKET_IFNAME.",
	 .judge = ct__check_duplicates},
	{"slow-resolver", "Looking up a host name takes more than a second.",
	 "Use numeric addresses, add the nodes to /etc/hosts, or repair the name servers in /etc/resolv.conf.",
	 .judge_node = ct__check_resolver},
	{"port", "Node 0 cannot listen on the master port.",
	 "Choose another --master-port, or end the program that uses it.", .judge_node = ct__check_port},
	{"reachability", "A node cannot connect to another node.",
	 "Allow TCP connections between the nodes in their firewalls, and check routes and interfaces; containers: --network host.",
	 .judge = ct__check_reach},
	{"bandwidth", "A link between two nodes is much slower than the others.",
	 "Compare the speed and the errors of the interfaces (`ethtool IFACE`), and check the switch port.",
	 .judge = ct__check_bandwidth},
	{"mtu", "The network interfaces of the nodes have different MTUs.",
	 "Set the same MTU on all nodes: `ip link set IFACE mtu N`.", .compare = ct__check_mtu},
	{"clock", "The clocks of two nodes differ by more than a second.",
	 "Synchronize the clocks: `chronyc makestep`, or start a time service.", .judge = ct__check_clock},
	{"open-files", "The limit on open files is too small for the ranks on the node.",
	 "Raise it with `ulimit -n 4096`, or with LimitNOFILE= in the service file.", .judge_node = ct__check_files},
	{"locked-memory", "The limit on locked memory is too small for GPUs or InfiniBand.",
	 "Raise it with `ulimit -l unlimited`; containers: --ulimit memlock=-1; Slurm: PropagateResourceLimitsExcept=MEMLOCK.",
	 .judge_node = ct__check_locked},
	{"shared-memory", "/dev/shm is too small for NCCL or MPI with the ranks on the node.",
	 "Containers: --shm-size=1g or --ipc=host; else: `mount -o remount,size=1g /dev/shm`.",
	 .judge_node = ct__check_shm},
	{"cpus", "The ranks on a node have more compute threads than the CPUs that this process may use.",
	 "Use fewer ranks or launch.threads=auto; Slurm: --cpus-per-task; containers: --cpus.",
	 .judge_node = ct__check_cpus},
	{"run-directory", "The run directory cannot be created or written.",
	 "Set run.dir to a directory that the user can write to.", .judge_node = ct__check_run_dir},
	{"disk-space", "The file system of the run directory has no space for checkpoints.",
	 "Free space, or set run.dir to a directory on a larger file system.", .judge_node = ct__check_space},
	{"disk-speed", "Writing to the run directory or reading the data is slow.",
	 "Set run.dir to a directory on a faster file system, or keep checkpoint.background=true; copy the data to local disks.",
	 .judge_node = ct__check_speed},
	{"run-shared",
	 "The nodes do not share the run directory, so not all of them can read the secret of the run and the checkpoints. Training refuses to start.",
	 "Set run.dir to a directory on a file system that all nodes mount.", .compare = ct__check_shared},
	{"locks", "Other nodes do not see a lock on a file in the run directory.",
	 "Mount the file system with locks: NFS without nolock or local_lock, Lustre with flock.",
	 .compare = ct__check_locks},
	{"data", "The data of the run is missing on a node.",
	 "Copy the data to the node, or set data.dir to a shared directory.", .judge_node = ct__check_data},
	{"version", "The nodes run different versions of ctrain.", "Install the same version on all nodes.",
	 .compare = ct__check_version},
	{"build", "The nodes run different builds of the same version.",
	 "Copy the same program and modules to all nodes.", .compare = ct__check_build},
	{"libraries", "Libraries such as oneDNN or NCCL have different versions on the nodes.",
	 "Install the same versions on all nodes.", .compare = ct__check_libraries},
	{"nccl-defect", "The installed version of NCCL has a known defect that concerns the options of the run.",
	 "Install the version that the message names, or change the option.", .judge_node = ct__check_nccl},
	{"config", "The nodes have different configurations.",
	 "Pass the same file and the same KEY=VALUE options on all nodes.", .compare = ct__check_config},
	{"devices", "The config requests devices that this node does not have.",
	 "Correct launch.devices or CUDA_VISIBLE_DEVICES, or use fewer ranks.", .judge_node = ct__check_devices},
	{"lost-gpu", "A GPU is on the PCI bus, but the driver does not list it (for example, nvidia-smi shows 7 of 8).",
	 "Reset the GPU or reboot the host. Until then, do not use the host, or use fewer ranks.",
	 .judge_node = ct__check_lost},
	{"xid", "The driver has logged a GPU error (Xid).",
	 "Look up the number in NVIDIA's Xid catalog. If the error occurs again, stop using the host.",
	 .judge_node = ct__check_xid},
};

const struct ct_check *ct_check_at(size_t i)
{
	return i < CT_ARRAY_LEN(checks) ? &checks[i] : NULL;
}

static void run(const struct ct_check *k, const struct ct_cluster *c, struct ct_findings *out)
{
	const struct ct_facts *first = &c->nodes[0];

	if (k->judge)
		k->judge(c, out);
	for (const struct ct_facts *n = first; n < first + c->n; n++) {
		if (k->judge_node && n->present)
			k->judge_node(n, out);
		if (k->compare && n != first && n->present && first->present)
			k->compare(n, first, out);
	}
}

enum ct_status ct_checks_run(const struct ct_cluster *c, struct ct_findings *out)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(checks); i++) {
		const size_t before = out->n;

		run(&checks[i], c, out);
		for (size_t k = before; k < out->n; k++)
			out->all[k].check = checks[i].name;
	}
	ct_findings_sort(out);
	return out->failed ? CT_FAIL(CT_NOMEM, "out of memory") : CT_OK;
}
