/* The command must mean the same in every shell of a user, including csh, so each word is quoted by itself and only
 * `cd`, `&&` and `exec env` are used. Variables and the secret do not appear in it, because other users can see the
 * arguments of processes: they are written to the standard input (trainer/launch/remote/control.h). All of them must
 * fit into the pipe, since nothing reads it before ctrain runs on the host; more is an error before anything is
 * started. ssh never asks for a password, and its own keep-alive notices a host that is gone. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dist/net/net.h"
#include "dist/rendezvous/secret.h"
#include "trainer/launch/remote/command_impl.h"
#include "trainer/launch/remote/control.h"

#define MAX_VARIABLES ((size_t)60 << 10) /* a pipe of 64 KiB has place for them and for some signals */

extern char **environ;

bool ct__host_is_here(const struct ct_host *h)
{
	char name[256] = "";

	(void)gethostname(name, sizeof(name) - 1);
	return strcmp(h->name, "localhost") == 0 || strcmp(h->name, name) == 0;
}

/* The launch options of node k, which replace those of the configuration. */
static void add_place(const struct ct_remote_opts *o, int k, struct ct_str *out)
{
	const struct ct_hosts *h = o->hosts;

	if (h->all[0].procs > 0) {
		ct_str_add(out, " --procs ");
		for (size_t i = 0; i < h->n; i++)
			ct_str_addf(out, "%s%d", i > 0 ? "," : "", h->all[i].procs);
	}
	if (h->n == 1)
		return;
	ct_str_addf(out, " --nodes %zu --node-rank %d --master-addr ", h->n, k);
	ct_str_add_shell(out, o->cfg->launch.master_addr[0] ? o->cfg->launch.master_addr : ct_host_address(&h->all[0]));
}

/* The words are those of any shell, including csh. */
static enum ct_status add_shell_command(const struct ct_remote_opts *o, int k, struct ct_str *out)
{
	char program[PATH_MAX] = "", dir[PATH_MAX];

	if (!getcwd(dir, sizeof(dir)) || readlink("/proc/self/exe", program, sizeof(program) - 1) < 0)
		return CT_FAIL(CT_IO, "cannot determine the current directory and this program");
	ct_str_add(out, "cd ");
	ct_str_add_shell(out, dir);
	ct_str_add(out, " && exec env " CT_CONTROL_VARIABLE "=stdin ");
	ct_str_add_shell(out, program);
	ct_str_add(out, " ");
	ct_str_add_shell(out, o->config);
	for (size_t i = 0; i < o->n_sets; i++) {
		char *set = ct_strfmt("%s=%s", o->sets[i].key, o->sets[i].value);

		CT_TRY_ALLOC(set);
		ct_str_add(out, " ");
		ct_str_add_shell(out, set);
		ct_free(set);
	}
	if (o->verbose)
		ct_str_add(out, " --verbose");
	add_place(o, k, out);
	return ct_str_status(out);
}

static enum ct_status add_word(struct ct__command *c, const char *word, size_t len)
{
	/* One more for the final NULL. */
	if (c->n + 1 >= c->cap) {
		char **more = ct_realloc(c->argv, c->cap + 16, sizeof(*more));

		CT_TRY_ALLOC(more);
		c->argv = more;
		c->cap += 16;
	}
	c->argv[c->n + 1] = NULL;
	CT_TRY_ALLOC(c->argv[c->n] = ct_strndup(word, len));
	c->n++;
	return CT_OK;
}

enum ct_status ct__command_make(const struct ct_remote_opts *o, int k, struct ct__command *out)
{
	/* Never asks for a password, and notices within half a minute that a host has gone. */
	static const char *const options[] = {
		"-T", "-oBatchMode=yes", "-oConnectTimeout=10", "-oServerAliveInterval=5", "-oServerAliveCountMax=6",
		"--"};
	const struct ct_host *h = &o->hosts->all[k];
	struct ct_str command = {0};
	enum ct_status st = add_shell_command(o, k, &command);

	*out = (struct ct__command){0};
	if (st == CT_OK && ct__host_is_here(h)) {
		st = add_word(out, "sh", 2);
		if (st == CT_OK)
			st = add_word(out, "-c", 2);
	} else {
		for (const char *s = o->ssh; st == CT_OK && *s; s += strspn(s, " ")) {
			st = add_word(out, s, strcspn(s, " "));
			s += strcspn(s, " ");
		}
		for (size_t i = 0; i < CT_ARRAY_LEN(options) && st == CT_OK; i++)
			st = add_word(out, options[i], strlen(options[i]));
		if (st == CT_OK)
			st = add_word(out, h->name, strlen(h->name));
	}
	if (st == CT_OK)
		st = add_word(out, ct_str_text(&command), command.len);
	ct_str_release(&command);
	return st;
}

void ct__command_release(struct ct__command *c)
{
	for (size_t i = 0; i < c->n; i++)
		ct_free(c->argv[i]);
	ct_free(c->argv);
	*c = (struct ct__command){0};
}

static bool is_passed_on(const char *variable)
{
	static const char *const starts[] = {"CTRAIN_", "NCCL_", "GLOO_"};
	bool found = false;

	for (size_t i = 0; i < CT_ARRAY_LEN(starts); i++)
		found = found || strncmp(variable, starts[i], strlen(starts[i])) == 0;
	return found && !strchr(variable, '\n');
}

static enum ct_status too_large(const struct ct_str *all, const char *largest)
{
	const int name = (int)strcspn(largest, "=");

	CT_FAIL(CT_USAGE,
		"the environment variables for the hosts (CTRAIN_*, NCCL_*, GLOO_*) take %zu bytes, but the limit is %zu; the largest one is %.*s (%zu bytes)",
		all->len, MAX_VARIABLES, name, largest, strlen(largest));
	return ct_error_hint("unset %.*s", name, largest);
}

enum ct_status ct__command_variables(struct ct_str *out)
{
	const char *largest = "";
	char token[CT_TOKEN_HEX];

	for (size_t i = 0; environ[i]; i++) {
		if (!is_passed_on(environ[i]))
			continue;
		ct_str_addf(out, "%s\n", environ[i]);
		if (strlen(environ[i]) > strlen(largest))
			largest = environ[i];
	}
	if (out->len > MAX_VARIABLES)
		return too_large(out, largest);
	if (!getenv("CTRAIN_TOKEN")) {
		CT_TRY(ct_token_make(token));
		ct_str_addf(out, "CTRAIN_TOKEN=%s\n", token);
	}
	ct_str_add(out, "\n");
	return ct_str_status(out);
}
