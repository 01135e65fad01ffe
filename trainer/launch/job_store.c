#define CT_LOG_COMPONENT "launch"
#include "trainer/launch/job_store.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/output.h"
#include "dist/rendezvous/secret.h"
#include "trainer/launch/signals.h"

#define DEFAULT_PORT 29400 /* for runs on several nodes; the same port as torchrun's default */
#define RETRY_MS 50

static enum ct_status stopped_by(int sig)
{
	return CT_FAIL(CT_INTERRUPTED, "stopped by signal %d (%s) before any rank was started", sig, strsignal(sig));
}

/* Node 0 creates the secret if there is none, so the other nodes may have to wait for it. */
static enum ct_status wait_for_secret(const struct ct_secret_opts *so, const struct ct_config *c, int signals,
				      struct ct_secret *out)
{
	const char *host = c->launch.master_addr;
	int port = c->launch.master_port ? (int)c->launch.master_port : DEFAULT_PORT;
	int64_t start = ct_now_ns(), deadline = ct_deadline_in((int64_t)(c->dist.rendezvous_timeout * 1e9));
	bool logged = false;
	enum ct_status st;
	while ((st = ct_secret_find(so, out)) == CT_NOT_FOUND && so->run_dir && ct_now_ns() < deadline) {
		struct pollfd p = {.fd = signals, .events = POLLIN};
		if (!logged && ct_now_ns() - start > CT_SEC) {
			logged = true;
			CT_INFO("waiting until node 0 creates the run's secret in %s/token; %s", so->run_dir,
				ct_error_hint_text());
		}
		(void)poll(&p, 1, RETRY_MS);
		int sig = ct_signals_next(signals);
		if (sig == SIGTSTP)
			ct_signals_suspend_self();
		else if (sig != 0)
			return stopped_by(sig);
	}
	if (st != CT_NOT_FOUND)
		return st;
	return ct_secret_missing(so->run_dir, ct_seconds_since(start), host, port);
}

/* Node 0: prints how to start the other nodes. The secret itself is printed to a terminal only, never to a log file. */
static void announce(const struct ct_secret *s, int port)
{
	if (!s->token[0]) {
		CT_WARN("dist.open_network is set: any program that can connect to port %d can read data of this run, join it and end it",
			port);
		return;
	}
	if (!s->in_file)
		return;
	ct_output_print(
		STDERR_FILENO,
		"ctrain: the other nodes read this run's secret from %s; on nodes that cannot read this file, start ctrain with\n",
		s->from);
	if (isatty(STDERR_FILENO))
		ct_output_print(STDERR_FILENO, "    CTRAIN_TOKEN=%s ctrain ...\n", s->token);
	else
		ct_output_print(STDERR_FILENO, "    CTRAIN_TOKEN=... ctrain ...    (the contents of that file)\n");
}

static enum ct_status choose_token(const struct ct_config *c, const struct ct_ranks *ranks, const char *run_dir,
				   int signals, struct ct_secret *secret)
{
	const struct ct_secret_opts so = {
		.run_dir = run_dir, .open_network = c->dist.open_network, .first = ranks->node == 0};
	if (ranks->n_nodes > 1)
		return wait_for_secret(&so, c, signals, secret);
	CT_TRY(ct_secret_from_env(secret));
	return secret->token[0] ? CT_OK : ct_token_make(secret->token);
}

/* The connection of the launcher, which is used for failures only. Ranks have their own connections to the store. */
static enum ct_status watch_store(struct ct_job_store *j, const struct ct_ranks *ranks, const char *host, int port)
{
	if (ranks->n_nodes == 1)
		return CT_OK;
	return ct_store_watch_start(host, port, &j->opts, &j->watch);
}

enum ct_status ct_job_store_open(const struct ct_config *c, const struct ct_ranks *ranks, const char *run_dir,
				 int signals, struct ct_job_store *out)
{
	struct ct_job_store j = {.opts = {.member = -1, .pid = (int)getpid(), .world = ranks->world}};
	const char *host = ranks->node == 0 ? "localhost" : c->launch.master_addr;
	int port = (int)c->launch.master_port;
	struct ct_secret secret;
	(void)gethostname(j.opts.host, sizeof(j.opts.host) - 1);
	snprintf(j.opts.run_id, sizeof(j.opts.run_id), "%s", ct_plan_run_id(c, ""));
	if (c->launch.init[0]) {
		*out = j;
		return CT_OK;
	}
	CT_TRY(choose_token(c, ranks, run_dir, signals, &secret));
	memcpy(j.opts.token, secret.token, sizeof(j.opts.token));
	if (ranks->n_nodes > 1 && port == 0)
		port = DEFAULT_PORT;
	if (ranks->node == 0) {
		CT_TRY(ct_store_server_start(ranks->n_nodes == 1 ? host : NULL, port, &j.opts, &j.server));
		port = ct_store_server_port(j.server);
		if (ranks->n_nodes > 1)
			announce(&secret, port);
	}
	bool v6 = strchr(host, ':') && host[0] != '[';
	snprintf(j.addr, sizeof(j.addr), "%s%s%s:%d", v6 ? "[" : "", host, v6 ? "]" : "", port);
	enum ct_status st = watch_store(&j, ranks, host, port);
	if (st < 0)
		ct_job_store_close(&j, 0);
	else
		*out = j;
	return st;
}

void ct_job_store_report(struct ct_job_store *j, const struct ct_failure *f)
{
	if (j->server)
		ct_store_server_fail(j->server, f);
	else
		ct_store_watch_report(j->watch, f);
}

bool ct_job_store_failure(struct ct_job_store *j, struct ct_failure *out, bool *store_gone)
{
	*store_gone = false;
	return j->server ? ct_store_server_failure(j->server, out) : ct_store_watch_failure(j->watch, out, store_gone);
}

void ct_job_store_close(struct ct_job_store *j, int64_t deadline_ns)
{
	ct_store_watch_stop(j->watch);
	ct_store_server_stop(j->server, deadline_ns);
	j->watch = NULL;
	j->server = NULL;
}
