/* Slurm is asked by running its own programs, with a deadline, because a busy controller may not answer. `scontrol show
 * job` prints NAME=VALUE pairs whose values may contain spaces, so a value ends where the next word is a capitalized
 * name with an equals sign. A job is requeued only in states in which it has not been cancelled by a user: Slurm shows
 * COMPLETING both after a cancellation and after the time limit, and the reason tells them apart. If Slurm does not
 * answer, the time left comes from the environment, which does not follow later changes of the limit. */
#define CT_LOG_COMPONENT "slurm"
#include "trainer/job/slurm/job.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process/subprocess.h"

#define REQUEST_NS (20 * CT_SEC) /* a busy controller may answer late */
#define MAX_PART 1000000000      /* of a time in days, hours, minutes or seconds */
#define LIMIT_NS (5 * CT_SEC)    /* asked again later; the end of a run may have to wait for the answer */

static int64_t env_number(const char *name)
{
	const int64_t v = ct_env_i64(name, 0);

	return v > 0 ? v : 0;
}

void ct_slurm_job_from_env(struct ct_slurm_job *out)
{
	const char *cluster = getenv("SLURM_CLUSTER_NAME");
	const char *array = getenv("SLURM_ARRAY_JOB_ID"), *task = getenv("SLURM_ARRAY_TASK_ID");

	*out = (struct ct_slurm_job){.id = env_number("SLURM_JOB_ID"),
				     .restart = (int)env_number("SLURM_RESTART_COUNT")};
	if (out->id == 0)
		return;
	snprintf(out->key, sizeof(out->key), "%.80s/%" PRId64, cluster ? cluster : "", out->id);
	if (array && task)
		snprintf(out->name, sizeof(out->name), "%.20s_%.20s", array, task);
	else
		snprintf(out->name, sizeof(out->name), "%" PRId64, out->id);
}

enum ct_status ct_slurm_show_job(const char *job, struct ct_str *out)
{
	return ct_subprocess_run((const char *const[]){"scontrol", "--oneliner", "show", "job", job, NULL},
				 ct_deadline_in(REQUEST_NS), out);
}

/* Returns the start of the next field, which begins with a name and '=', or the end of the line. */
static const char *end_of_value(const char *p)
{
	for (; *p && *p != '\n'; p++) {
		const char *name = p + 1;

		if (*p != ' ' || !isupper((unsigned char)*name))
			continue;
		while (isalnum((unsigned char)*name) || strchr("/:_-", *name ? *name : ' '))
			name++;
		if (*name == '=')
			return p;
	}
	return p;
}

bool ct_slurm_field(const char *line, const char *name, char *out, size_t len)
{
	size_t n = strlen(name);

	out[0] = '\0';
	for (const char *p = line; (p = strstr(p, name)); p += n) {
		if ((p != line && p[-1] != ' ') || p[n] != '=')
			continue;
		const char *value = p + n + 1, *end = end_of_value(value);
		while (end > value && end[-1] == ' ')
			end--;
		snprintf(out, len, "%.*s", (int)(end - value), value);
		return true;
	}
	return false;
}

enum ct_status ct_slurm_parse_time(const char *text, int64_t *seconds)
{
	int64_t part[4] = {0}, days = 0;
	bool too_large = false;
	int n = 0;
	const char *p = text;

	if (strcmp(text, "UNLIMITED") == 0) {
		*seconds = CT_SLURM_NO_LIMIT;
		return CT_OK;
	}
	for (bool more = true; more && n < 4 && isdigit((unsigned char)*p); n++) {
		char *end;

		part[n] = strtoll(p, &end, 10);
		too_large |= part[n] > MAX_PART;
		more = *end == '-' || *end == ':';
		if (*end == '-' && n == 0 && days == 0) {
			days = part[0];
			n = -1;
		}
		p = end + more;
	}
	if (n < 2 || n > 3 || *p || too_large)
		return CT_FAIL(CT_DATA, "\"%.40s\" is not a time limit", text);
	*seconds = n == 2 ? part[0] * 60 + part[1] : (days * 24 + part[0]) * 3600 + part[1] * 60 + part[2];
	return CT_OK;
}

/* Newer versions of Slurm write the end of the job to the environment, where it does not follow later changes. */
static enum ct_status time_left_in_env(int64_t *seconds)
{
	int64_t end = env_number("SLURM_JOB_END_TIME");

	if (end == 0)
		return ct_error_status();
	ct_error_clear();
	*seconds = end - (int64_t)ct_wall_seconds();
	return CT_OK;
}

enum ct_status ct_slurm_time_left(const struct ct_slurm_job *job, int64_t *seconds)
{
	struct ct_str text = {0};
	enum ct_status st = ct_subprocess_run((const char *const[]){"squeue", "-h", "-j", job->name, "-o", "%L", NULL},
					      ct_deadline_in(LIMIT_NS), &text);

	while (text.len > 0 && isspace((unsigned char)text.s[text.len - 1]))
		text.s[--text.len] = '\0';
	if (st == CT_OK)
		st = ct_slurm_parse_time(ct_str_text(&text), seconds);
	ct_str_release(&text);
	return st < 0 ? time_left_in_env(seconds) : CT_OK;
}

/* A job that was cancelled must end: its state is COMPLETING while its processes end, as after a timeout. A job that is
 * pending has been requeued by Slurm. */
static bool may_be_requeued(const char *line, char *why, size_t len)
{
	static const char *const states[] = {"RUNNING", "TIMEOUT", "PREEMPTED"};
	char state[40], reason[40], requeue[8], batch[8];
	bool good;

	(void)ct_slurm_field(line, "JobState", state, sizeof(state));
	(void)ct_slurm_field(line, "Reason", reason, sizeof(reason));
	(void)ct_slurm_field(line, "Requeue", requeue, sizeof(requeue));
	(void)ct_slurm_field(line, "BatchFlag", batch, sizeof(batch));
	good = strcmp(state, "COMPLETING") == 0 && strcmp(reason, "TimeLimit") == 0;
	for (size_t i = 0; i < CT_ARRAY_LEN(states); i++)
		good = good || strcmp(state, states[i]) == 0;
	if (!good)
		snprintf(why, len, "its state is %s", state[0] ? state : "unknown");
	else if (strcmp(batch, "0") == 0)
		snprintf(why, len, "it is not a batch job");
	else if (strcmp(requeue, "0") == 0)
		snprintf(why, len, "it was submitted with --no-requeue");
	else
		return true;
	return false;
}

static enum ct_status requeue(const char *id, char *why, size_t len)
{
	struct ct_str line = {0};
	enum ct_status st = ct_slurm_show_job(id, &line);

	if (st == CT_OK && may_be_requeued(ct_str_text(&line), why, len)) {
		ct_str_clear(&line);
		CT_INFO("requeuing Slurm job %s", id);
		st = ct_subprocess_run((const char *const[]){"scontrol", "requeue", id, NULL},
				       ct_deadline_in(REQUEST_NS), &line);
	}
	ct_str_release(&line);
	return st;
}

void ct_slurm_requeue(const struct ct_slurm_job *job)
{
	struct ct_error stop;
	char why[80] = "";

	ct_error_save(&stop);
	if (requeue(job->name, why, sizeof(why)) < 0)
		CT_WARN("Slurm job %s could not be requeued: %s", job->name, ct_error_message());
	else if (why[0])
		CT_INFO("Slurm job %s is not requeued: %s", job->name, why);
	ct_error_clear();
	if (stop.status < 0)
		(void)ct_error_restore(&stop);
}
