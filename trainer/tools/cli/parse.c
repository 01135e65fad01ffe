/* The line is parsed in two passes, because options may precede the command, and what an option means depends on it.
 * The first pass only divides the line into words and options with their values, which needs nothing but the table of
 * all options. Then the command is found: help and version first, which accept everything else on the line, then the
 * words of a command, and then a config file, which implies `train`. The second pass looks up each option among those
 * of the command and applies it, in the order of the line.
 *
 * Values become config keys with their origin ("--procs"), so that an error in the config names the option. Strings are
 * borrowed from argv, except for keys and values. */
#define CT_LOG_COMPONENT "cli"
#include "trainer/tools/cli/cli.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "trainer/tools/cli/unknown.h"

/* An option or KEY=VALUE on the command line. It is checked when the command is known. */
struct given {
	const struct ct_option *option; /* NULL if value is KEY=VALUE */
	const char *value;
	char shown[48]; /* as the user wrote it, such as "--nproc_per_node", or "argument 3" */
};

struct line {
	const struct ct_cli_table *table;
	struct ct_cli *cli;
	const char **words; /* positional arguments */
	size_t n_words;
	struct given *given;
	size_t n_given;
};

/* Parses a word that starts with '-'. The next word may be its value. */
static enum ct_status read_option(struct line *l, int argc, char **argv, int *i)
{
	const char *arg = argv[*i], *name = arg + strspn(arg, "-");
	size_t dashes = (size_t)(name - arg), len = strcspn(name, "=");
	struct given *g = &l->given[l->n_given];

	g->option = dashes <= 2 ? ct_option_find(l->table, name, len) : NULL;
	if (!g->option || (dashes == 1) != (len == 1))
		return ct_unknown_option(l->table, argc, argv, *i);
	snprintf(g->shown, sizeof(g->shown), "%.*s", (int)(dashes + len), arg);
	g->value = name[len] == '=' ? name + len + 1 : NULL;
	if (g->value && !g->option->value)
		return CT_FAIL(CT_USAGE, "%s takes no value (\"%s\")", g->shown, g->value);
	if (!g->value && g->option->value) {
		if (*i + 1 >= argc || strncmp(argv[*i + 1], "--", 2) == 0)
			return CT_FAIL(CT_USAGE, "%s needs a value: %s", g->shown, g->option->value);
		g->value = argv[++*i];
	}
	l->n_given++;
	return CT_OK;
}

static enum ct_status add_set(struct ct_cli *cli, const struct given *g, const char *key, size_t key_len,
			      const char *value)
{
	struct ct_config_set *s;

	CT_TRY_ALLOC(s = ct_realloc(cli->sets, cli->n_sets + 1, sizeof(*cli->sets)));
	cli->sets = s;
	s += cli->n_sets++;
	s->key = ct_strndup(key, key_len);
	s->value = ct_strdup(value);
	s->origin = ct_strdup(g->shown);
	return s->key && s->value && s->origin ? CT_OK : CT_NOMEM;
}

/* The argument of import is a command line, which may start with NAME=VALUE. */
static bool takes_line(const struct line *l)
{
	return l->n_words == 1 && strcmp(l->words[0], "import") == 0;
}

static enum ct_status split_words(struct line *l, int argc, char **argv)
{
	bool only_words = false;

	for (int i = 1; i < argc; i++) {
		struct given *g = &l->given[l->n_given];
		const char *arg = argv[i];

		if (!only_words && strcmp(arg, "--") == 0)
			only_words = true;
		else if (!only_words && arg[0] == '-' && arg[1])
			CT_TRY(read_option(l, argc, argv, &i));
		else if (!ct_is_set(arg) || takes_line(l) || arg[0] == '-')
			l->words[l->n_words++] = arg;
		else {
			snprintf(g->shown, sizeof(g->shown), "argument %d", i);
			g->value = arg;
			l->n_given++;
		}
	}
	return CT_OK;
}

/* Finds the command that the first words name. Stores the number of these words in *used. */
static enum ct_status find_command(const struct line *l, const struct ct_command **out, size_t *used)
{
	const char *first = l->n_words > 0 ? l->words[0] : NULL, *second = l->n_words > 1 ? l->words[1] : NULL;

	*used = 0;
	for (size_t i = 0; !first && i < l->n_given; i++) {
		if (l->given[i].option && strcmp(l->given[i].option->names, "config") == 0) {
			CT_FAIL(CT_USAGE, "no command is given, only options");
			return ct_error_hint("to train, write the configuration file without an option: ctrain %.200s",
					     l->given[i].value);
		}
	}
	if (!first) {
		CT_FAIL(CT_USAGE, l->n_given > 0 ? "no configuration file is given, only options"
						 : "no configuration file is given");
		return ct_error_hint(
			"to train a model, run ctrain CONFIG.yaml, for example ctrain configs/mnist_ddp.yaml; see ctrain --help for more");
	}
	if (ct_command_has_subs(l->table, first)) {
		if (!second) {
			CT_FAIL(CT_USAGE, "\"%s\" is incomplete: it needs a subcommand", first);
			return ct_error_hint("ctrain help %s lists the subcommands", first);
		}
		*used = 2;
		*out = ct_command_find(l->table, first, second);
		return *out ? CT_OK : ct_unknown_command(l->table, second, first);
	}
	*out = ct_command_find(l->table, first, second);
	*used = *out ? (*out)->sub ? 2 : 1 : 0;
	if (*out)
		return CT_OK;
	if (!ct_is_config(first))
		return ct_unknown_command(l->table, first, NULL);
	*out = ct_command_find(l->table, "train", NULL);
	return CT_OK;
}

static enum ct_status set_key(struct ct_cli *cli, const struct given *g, const char *key, const char *value)
{
	return add_set(cli, g, key, strlen(key), value);
}

static void remove_spaces(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (*s != ' ')
			*to++ = *s;
	}
	*to = '\0';
}

static enum ct_status apply_procs(struct ct_cli *cli, const struct given *g)
{
	bool gpu = strcmp(g->value, "gpu") == 0 || strcmp(g->value, "cuda") == 0;

	if (strchr(g->value, ',')) {
		enum ct_status st;
		char *list;

		/* Users write "2, 8", too. */
		CT_TRY_ALLOC(list = ct_strdup(g->value));
		remove_spaces(list);
		st = set_key(cli, g, "launch.procs_list", list);
		ct_free(list);
		return st;
	}
	/* torchrun accepts a kind of device, which means one rank per device of this kind. */
	if (gpu || strcmp(g->value, "cpu") == 0) {
		CT_TRY(set_key(cli, g, "device", gpu ? "cuda" : "cpu"));
		return set_key(cli, g, "launch.procs", "auto");
	}
	return set_key(cli, g, "launch.procs", g->value);
}

/* host, host:port or [v6]:port */
static enum ct_status apply_endpoint(struct ct_cli *cli, const struct given *g)
{
	const char *colon = strrchr(g->value, ':'), *bracket = strrchr(g->value, ']');
	char host[256];
	size_t len;

	if (colon && (bracket ? colon < bracket : strchr(g->value, ':') != colon))
		colon = NULL; /* a bare IPv6 address */
	len = colon ? (size_t)(colon - g->value) : strlen(g->value);
	if (len == 0 || len >= sizeof(host))
		return CT_FAIL(CT_USAGE, "%s \"%.60s\": expected HOST or HOST:PORT", g->shown, g->value);
	snprintf(host, sizeof(host), "%.*s", (int)len, g->value);
	CT_TRY(set_key(cli, g, "launch.master_addr", host));
	return colon ? set_key(cli, g, "launch.master_port", colon + 1) : CT_OK;
}

/* True for the options that describe the place of this process in the run. */
static bool needs_value(const struct ct_option *o)
{
	return o->group == CT_OPT_RANK || o->kind == CT_OPTION_PROCS ||
	       (o->key && (strncmp(o->key, "launch.node", 11) == 0 || strncmp(o->key, "launch.master", 13) == 0));
}

/* o: the option of the command that has the name of g->option */
static enum ct_status apply_option(struct ct_cli *cli, const struct ct_option *o, const struct given *g)
{
	char *to = o->own ? cli->own : (char *)cli;

	/* Usually "--node-rank $NAME" with a variable that this shell does not know. */
	if (g->value && !g->value[0] && needs_value(o)) {
		CT_FAIL(CT_USAGE, "the value of %s is empty", g->shown);
		return ct_error_hint(
			"if you passed a variable such as $NODE_RANK, set and export it in this shell; otherwise, remove %s",
			g->shown);
	}
	switch (o->kind) {
	case CT_OPTION_TEXT:
		*(const char **)(to + o->offset) = g->value;
		return CT_OK;
	case CT_OPTION_FLAG:
		*(bool *)(to + o->offset) = true;
		return CT_OK;
	case CT_OPTION_KEY:
		return set_key(cli, g, o->key, g->value);
	case CT_OPTION_PROCS:
		return apply_procs(cli, g);
	case CT_OPTION_STANDALONE:
		return set_key(cli, g, o->key, "1");
	case CT_OPTION_QUIET:
		return set_key(cli, g, o->key, "off");
	case CT_OPTION_ENDPOINT:
		return apply_endpoint(cli, g);
	case CT_OPTION_BACKEND:
		if (strcmp(g->value, "c10d") != 0 && strcmp(g->value, "static") != 0)
			return CT_FAIL(
				CT_UNSUPPORTED,
				"%s %.40s: ctrain supports only its own rendezvous, which is selected by c10d or static",
				g->shown, g->value);
		return CT_OK;
	case CT_OPTION_HELP:
	case CT_OPTION_VERSION:
		break;
	}
	return CT_OK;
}

/* The error of an option of another command. The name may mean a config key here: --seed 3 is run.seed=3. */
static enum ct_status misplaced_option(const struct ct_command *c, const struct given *g)
{
	char name[40];

	CT_FAIL(CT_USAGE, "%s cannot be used with %s", g->shown, ct_command_name(c, name));
	if (g->option->group == CT_OPT_PLACE || !(c->options & CT_OPT_SETS) ||
	    !ct_hint_at_key(g->shown + strspn(g->shown, "-"), g->value))
		ct_error_hint("ctrain help %s shows its options", name);
	return CT_USAGE;
}

/* The error of a command with n arguments, which are too few or too many. */
static enum ct_status wrong_number(const struct ct_command *c, const char *const *words, int n)
{
	const char *extra = n > c->max_args ? words[c->max_args] : NULL;
	struct ct_key_hint hint = {0};
	char name[40];

	ct_command_name(c, name);
	if (extra && c->options & CT_OPT_SETS)
		hint = ct_config_key_meant(extra, NULL);
	if (extra)
		CT_FAIL(CT_USAGE, "%s: unexpected argument \"%s\"", name, extra);
	else
		CT_FAIL(CT_USAGE, "%s needs %s", name, c->args);
	if (hint.key) /* optim.lr 0.1 */
		return ct_error_hint("config keys are written as KEY=VALUE: %s=%.40s", hint.key,
				     n > c->max_args + 1 ? words[c->max_args + 1] : "VALUE");
	return ct_error_hint("usage: ctrain %s %s", name, c->args);
}

/* The words after the first `used` ones are the arguments of the command. */
static enum ct_status take_words(struct line *l, size_t used)
{
	struct ct_cli *cli = l->cli;

	CT_TRY_ALLOC(cli->args = CT_NEW_ARRAY(const char *, l->n_words - used + 1));
	for (size_t i = used; i < l->n_words; i++)
		cli->args[cli->n_args++] = l->words[i];
	return CT_OK;
}

static enum ct_status apply(struct line *l, const struct ct_command *c, size_t used)
{
	struct ct_cli *cli = l->cli;
	int n_words = (int)(l->n_words - used);
	char name[40];

	for (size_t i = 0; i < l->n_given; i++) {
		const struct given *g = &l->given[i];

		if (!g->option) {
			if (!(c->options & CT_OPT_SETS))
				return CT_FAIL(CT_USAGE, "%s takes no KEY=VALUE (\"%.60s\")", ct_command_name(c, name),
					       g->value);
			CT_TRY(add_set(cli, g, g->value, strcspn(g->value, "="), strchr(g->value, '=') + 1));
			continue;
		}
		const struct ct_option *o = ct_option_of(l->table, c, g->option);

		if (!o)
			return misplaced_option(c, g);
		CT_TRY(apply_option(cli, o, g));
	}
	if (n_words < c->min_args || n_words > c->max_args)
		return wrong_number(c, l->words + used, n_words);
	return take_words(l, used);
}

/* help, --help, --version and version. Returns their command, which gets all words as its arguments, or NULL if the
 * line is another one. Stores the last word of `help --search WORD` in *search. */
static const struct ct_command *find_information(const struct line *l, const struct given **search)
{
	const struct ct_command *help = ct_command_find(l->table, "help", NULL),
				*version = ct_command_find(l->table, "version", NULL);
	const char *first = l->n_words > 0 ? l->words[0] : NULL;
	const bool asks_help = first && strcmp(first, "help") == 0;

	for (size_t i = 0; i < l->n_given; i++) {
		const struct given *g = &l->given[i];

		if (g->option && asks_help && g->option->own == help->own && help->own) {
			*search = g;
			return help;
		}
		if (g->option && g->option->kind == CT_OPTION_HELP)
			return help;
		if (g->option && g->option->kind == CT_OPTION_VERSION)
			return version;
	}
	if (asks_help)
		return help;
	return first && strcmp(first, "version") == 0 && l->n_words == 1 && l->n_given == 0 ? version : NULL;
}

static enum ct_status set_command(struct ct_cli *cli, const struct ct_command *c)
{
	cli->command = c;
	if (c->own)
		CT_TRY_ALLOC(cli->own = CT_NEW_ARRAY(char, c->own->size));
	return CT_OK;
}

static enum ct_status parse(struct line *l, int argc, char **argv)
{
	const struct ct_command *c = NULL;
	const struct given *search = NULL;
	size_t used;

	CT_TRY(split_words(l, argc, argv));
	c = find_information(l, &search);
	if (c) {
		CT_TRY(set_command(l->cli, c));
		if (search)
			CT_TRY(apply_option(l->cli, search->option, search));
		return take_words(l, 0);
	}
	CT_TRY(find_command(l, &c, &used));
	CT_TRY(set_command(l->cli, c));
	return apply(l, c, used);
}

enum ct_status ct_cli_parse(const struct ct_cli_table *table, int argc, char **argv, struct ct_cli *out)
{
	struct line l = {.table = table, .cli = out};
	size_t n = argc > 0 ? (size_t)argc : 1;
	enum ct_status st = CT_NOMEM;

	*out = (struct ct_cli){.table = table, .argc = argc, .argv = argv};
	l.words = CT_NEW_ARRAY(const char *, n);
	if (!l.words)
		return CT_NOMEM;
	l.given = CT_NEW_ARRAY(struct given, n);
	if (l.given)
		st = parse(&l, argc, argv);
	ct_free(l.given);
	ct_free(l.words);
	return st;
}

enum ct_status ct_cli_number(const char *option, const char *text, int64_t fallback, int64_t lo, int64_t hi,
			     int64_t *out)
{
	*out = fallback;
	if (text && (ct_parse_i64(text, out) < 0 || *out < lo || *out > hi))
		return CT_FAIL(CT_USAGE, "%s %.40s: expected an integer from %lld to %lld", option, text, (long long)lo,
			       (long long)hi);
	return CT_OK;
}

void ct_cli_set_log(const struct ct_cli *cli)
{
	const bool notes = cli->command && cli->command->options & CT_OPT_NOTES;

	ct_log_show_info(cli->verbose ? CT_LOG_INFO_ALWAYS : notes ? CT_LOG_INFO_WITHOUT_FILE : CT_LOG_INFO_NEVER);
}

void ct_cli_release(struct ct_cli *cli)
{
	for (size_t i = 0; i < cli->n_sets; i++) {
		ct_free((void *)(uintptr_t)cli->sets[i].key);
		ct_free((void *)(uintptr_t)cli->sets[i].value);
		ct_free((void *)(uintptr_t)cli->sets[i].origin);
	}
	ct_free(cli->own);
	ct_free(cli->sets);
	ct_free((void *)cli->args);
	*cli = (struct ct_cli){0};
}
