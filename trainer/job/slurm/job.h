/* The Slurm job in which this process runs, and requests to Slurm about it. Requests run Slurm's own programs (squeue,
 * scontrol), so that ctrain needs no library of a specific Slurm version. */
#ifndef CT_TRAINER_JOB_SLURM_JOB_H
#define CT_TRAINER_JOB_SLURM_JOB_H

#include "base/mem.h"

#define CT_SLURM_NO_LIMIT INT64_MAX

struct ct_slurm_job {
	int64_t id;    /* SLURM_JOB_ID; 0 if this process is not in a job */
	int restart;   /* how often the job has been requeued */
	char name[48]; /* for requests: the id, or ARRAY_TASK in a job array, because a task may have the id of the
			  array */
	char key[128]; /* name of the cluster and id; "" if this process is not in a job */
};
/* Reads the environment of this process. */
void ct_slurm_job_from_env(struct ct_slurm_job *out);

/* Gets all fields of a job, as one line per job: "JobId=7 JobName=a UserId=root(0) ...". `job` is an id such as 7 or
 * 7_2. */
enum ct_status ct_slurm_show_job(const char *job, struct ct_str *out) CT_MUST_CHECK;
/* Copies the value of a field, such as "JobState". Values may contain spaces. Returns false, and copies "", if there is
 * no such field. */
bool ct_slurm_field(const char *line, const char *name, char *out, size_t len);

/* Gets the time until the job reaches its time limit, in seconds, or CT_SLURM_NO_LIMIT. */
enum ct_status ct_slurm_time_left(const struct ct_slurm_job *job, int64_t *seconds) CT_MUST_CHECK;
/* Parses squeue's form of a time: [days-][hours:]minutes:seconds, or UNLIMITED. Fails with CT_DATA. */
enum ct_status ct_slurm_parse_time(const char *text, int64_t *seconds) CT_MUST_CHECK;

/* Requeues the job, so that it starts again and resumes. The job would otherwise count as finished, because its
 * processes have ended by themselves. Requeuing ends all of its processes, including this one. A job that was
 * cancelled, that has already been requeued, or that does not allow it (--no-requeue, salloc), is not requeued. The log
 * says what was done. Keeps the error chain. */
void ct_slurm_requeue(const struct ct_slurm_job *job);

#endif
