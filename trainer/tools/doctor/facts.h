/* What doctor knows about the nodes of a run. The files collect_*.c and links.c collect the facts, and the files
 * check_*.c judge them; judging reads nothing but these structs. All structs consist of plain data, without pointers to
 * other facts, so that the nodes can exchange them (facts_json.c). -1: unknown; "": unknown or none. */
#ifndef CT_TRAINER_TOOLS_DOCTOR_FACTS_H
#define CT_TRAINER_TOOLS_DOCTOR_FACTS_H

#include <stdbool.h>
#include <stdint.h>

enum { CT_FACTS_ADDRS = 32, CT_FACTS_SETTINGS = 32, CT_FACTS_NAMES = 8 };

/* An address of a network interface. */
struct ct_addr_facts {
	char iface[16], addr[64];
	bool running, ipv6;
	int64_t mtu;
};

/* A setting of NCCL or gloo that is not fine (dist/settings/settings.h). */
struct ct_setting_facts {
	char name[64], why[384], hint[192];
	bool wrong; /* false: doubtful */
};

/* An environment variable that nothing reads, and the name that was probably meant. */
struct ct_name_facts {
	char name[40], meant[40];
};

/* What a node found when it connected to another node. */
struct ct_link_facts {
	bool tried, reached;
	char addr[64];  /* the address that was reached, or else the last one that was tried */
	char error[96]; /* why it was not reached */
	int64_t reason; /* the same as an enum ct_reason, if it has a value for it */
	double rtt_ms;
	double ahead_s;   /* the other node's clock minus the clock of this node */
	double mib_per_s; /* 0: not measured */
};

enum ct_sharing { CT_SHARING_UNKNOWN, CT_SHARING_NO, CT_SHARING_NO_LOCK, CT_SHARING_YES };

struct ct_facts {
	bool present; /* false: this node has not reported */
	int64_t node, n_nodes, ranks;
	char host[64];
	char net_key[96]; /* equal for processes with the same network */

	/* the program */
	char version[40], build[80], libraries[256], config[68];
	char nccl_defect[256], nccl_remedy[160]; /* of the installed version, if it concerns the run */

	/* the launch */
	char launcher[16];   /* "none", or the name of the launcher that started this process */
	int64_t tasks_here;  /* tasks that Slurm started on this node for this step; 0: not in a step */
	int64_t slurm_node;  /* SLURM_NODEID; -1: not in a Slurm step of several nodes */
	bool asks_for_ranks; /* the command line has --procs or --nodes */

	/* names */
	char own_addr[64];                          /* the first address of this host's own name */
	char master[200], master_addr[64];          /* as given, and its first address */
	char master_error[160];                     /* why the name has no address */
	bool master_here, master_ipv4, master_ipv6; /* here: it is an address of this node */
	double resolve_s;                           /* time for both names */

	/* the network */
	struct ct_addr_facts addrs[CT_FACTS_ADDRS];
	int64_t n_addrs;
	char source[64]; /* the local address from which this node reaches the master */
	int64_t port;
	char port_error[256]; /* why node 0 cannot listen on it */

	/* limits */
	int64_t open_files, open_files_most, open_files_needed, locked_bytes, shm_bytes, shm_needed;
	bool in_container;

	/* directories */
	char run_dir[256], run_error[256], data_error[384];
	int64_t data_status; /* enum ct_status */
	int64_t run_free_bytes, run_needed_bytes;
	double run_mib_per_s, data_mib_per_s; /* writing, reading; 0: not measured */
	int64_t run_sharing;                  /* enum ct_sharing */

	/* CPUs and memory */
	int64_t cpus, threads, memory_bytes; /* threads: of one rank */
	char binding[2048];                  /* lines with the binding of each rank; "": not requested */

	/* devices */
	char device[16], device_error[384], device_hint[256];     /* "cpu", "cuda" */
	int64_t gpus_wanted, gpus_visible, gpus_driver, gpus_pci; /* in this program, in the driver, on the bus */
	char lost_slots[128];                                     /* GPUs on the bus that the driver does not have */
	char xid[160];                                            /* the last error that the driver logged */
	char visible_devices[96];                                 /* CUDA_VISIBLE_DEVICES */

	struct ct_setting_facts settings[CT_FACTS_SETTINGS];
	int64_t n_settings;
	struct ct_name_facts names[CT_FACTS_NAMES];
	int64_t n_names;
};

/* The facts of all nodes of a run, and the links between them. */
struct ct_cluster {
	struct ct_facts *nodes;      /* [n] */
	struct ct_link_facts *links; /* [n][n]: from row to column; NULL with one node */
	int n, self;
	/* Why this node could not compare itself with the others, and what to do; "" if it could. */
	char join_error[512], join_hint[256];
};

#endif
