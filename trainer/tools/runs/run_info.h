/* What `ctrain runs`, `compare` and `watch` show of a run. */
#ifndef CT_TRAINER_TOOLS_RUNS_RUN_INFO_H
#define CT_TRAINER_TOOLS_RUNS_RUN_INFO_H

#include "trainer/tools/report/run_files.h"

enum ct_run_state {
	CT_RUN_RUNNING, /* a process holds the lock, or a process on another host, whose lock cannot be seen, has
			   recently written */
	CT_RUN_DONE,    /* has reached its end or its target */
	CT_RUN_STOPPED, /* by a signal; can be continued */
	CT_RUN_FAILED,  /* with an error, or before the first step */
	CT_RUN_LOST,    /* ended without an `end` line, for example by SIGKILL or when its host was switched off */
	CT_RUN_STATES
};

/* Numbers that are unknown are NaN. */
struct ct_run_info {
	char *name, *dir; /* owned; name is how the run is called in a list */
	struct ct_run_files files;
	enum ct_run_state state;
	const char *message;         /* of a run that has failed; "" if there is none; borrowed from files */
	double best_top1, best_loss; /* of evaluations */
	double epochs, epochs_total, step, steps_total; /* epochs_total is unknown if the steps limit the run */
	double seconds;                                 /* of all processes of the run */
	double images_per_sec;
	double started; /* the first process, in seconds since 1970 */
	double silent;  /* seconds since the run has written something */
};

/* Returns true if the directory is a run directory, or looks like one that was just created. */
bool ct_run_is_dir(const char *dir);
/* Returns the time of the last change of a file of the run in seconds, or NaN. */
double ct_run_changed_at(const char *dir, const char *name);
/* Reads the run. Fails only if a file exists, but cannot be read. Release *out even if this function fails. */
enum ct_status ct_run_info_load(const char *dir, const char *name, struct ct_run_info *out) CT_MUST_CHECK;
void ct_run_info_release(struct ct_run_info *r);
const char *ct_run_state_name(enum ct_run_state s);
/* Returns the value of a config key of the run, or NULL if the key does not apply or is unknown. */
const char *ct_run_setting(const struct ct_run_info *r, const char *key);

/* The runs in a directory, sorted by name. */
struct ct_run_list {
	struct ct_run_info *runs; /* [n] */
	size_t n, cap;
};
/* Finds the runs in a directory and its subdirectories, or the run that the directory itself is. Runs that cannot be
 * read are reported in warnings. Fails with CT_NOT_FOUND if there is no such directory. */
enum ct_status ct_run_list_find(const char *dir, struct ct_run_list *out) CT_MUST_CHECK;
void ct_run_list_release(struct ct_run_list *l);

/* The config keys whose values are not the same in all runs. run.dir and run.name are not included. */
struct ct_run_keys {
	const char **keys; /* [n] borrowed from the runs, in the order of the config */
	size_t n, cap;
};
enum ct_status ct_run_keys_that_differ(const struct ct_run_info *const *runs, size_t n,
				       struct ct_run_keys *out) CT_MUST_CHECK;
void ct_run_keys_release(struct ct_run_keys *k);

#endif
