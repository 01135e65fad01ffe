/* A line is formatted on the stack and written while the lock is held, so lines of several threads do not mix, and
 * logging in a training step allocates nothing. Whether a line is enabled is first decided by `loudest`, the most
 * verbose level of all rules, which is read without the lock: a disabled debug line costs one load. New levels are
 * parsed completely before they replace the old ones. Lines for the terminal go through base/output.h, which does not
 * block a run; lines for the log file are written directly. Messages are escaped here, once, so callers may log names
 * from files. */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/output.h"

#define MAX_RULES 16
#define COMPONENT_LEN 16
#define MAX_TEXT 2048
#define MAX_LINE 4096

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

struct levels {
	enum ct_log_level level;
	size_t n_rules;
	struct {
		char component[COMPONENT_LEN];
		enum ct_log_level level;
	} rules[MAX_RULES];
};

/* Log levels and destinations. */
static struct {
	pthread_mutex_t lock;
	_Atomic int loudest; /* most verbose level of all rules; read without the lock */
	struct levels levels;
	int rank, world;
	enum ct_log_info show_info;
	int fd;     /* the log file or -1 */
	char *path; /* of the log file, owned */
	void (*before)(void *user);
	void *before_user;
} logger = {.lock = PTHREAD_MUTEX_INITIALIZER,
	    .loudest = CT_LOG_INFO,
	    .levels = {.level = CT_LOG_INFO},
	    .rank = -1,
	    .fd = -1};

static enum ct_status parse_level(const char *word, size_t len, enum ct_log_level *out)
{
	char *copy;
	const char *near;

	for (size_t i = 0; i < CT_ARRAY_LEN(level_names); i++) {
		if (strlen(level_names[i]) == len && memcmp(level_names[i], word, len) == 0) {
			*out = (enum ct_log_level)i;
			return CT_OK;
		}
	}
	CT_TRY_ALLOC(copy = ct_strndup(word, len));
	near = ct_suggest(copy, level_names, CT_ARRAY_LEN(level_names));
	CT_FAIL(CT_CONFIG, "unknown log level \"%.40s\"", copy);
	if (near)
		ct_error_hint("did you mean \"%s\"?", near);
	else
		ct_error_hint("levels are error, warn, info, debug, trace; \"warn,dist=debug\" sets one component");
	ct_free(copy);
	return CT_CONFIG;
}

static enum ct_status add_rule(struct levels *l, const char *component, size_t len, enum ct_log_level level)
{
	size_t i = 0;

	if (len == 0 || len >= COMPONENT_LEN)
		return CT_FAIL(CT_CONFIG, "log component \"%.*s\" is not 1 to %d letters long",
			       (int)(len > 40 ? 40 : len), component, COMPONENT_LEN - 1);
	while (i < l->n_rules &&
	       (strncmp(l->rules[i].component, component, len) != 0 || l->rules[i].component[len] != '\0'))
		i++;
	if (i == MAX_RULES)
		return CT_FAIL(CT_CONFIG, "too many log levels: at most %d components can have their own level",
			       MAX_RULES);
	if (i == l->n_rules)
		l->n_rules++;
	memcpy(l->rules[i].component, component, len);
	l->rules[i].component[len] = '\0';
	l->rules[i].level = level;
	return CT_OK;
}

enum ct_status ct_log_configure(const char *spec)
{
	struct levels next = {.level = CT_LOG_INFO};
	enum ct_log_level loudest;

	while (*spec) {
		size_t len = strcspn(spec, ","), name = strcspn(spec, ",=");
		enum ct_log_level level;

		if (name < len) {
			CT_TRY(parse_level(spec + name + 1, len - name - 1, &level));
			CT_TRY(add_rule(&next, spec, name, level));
		} else if (len > 0) {
			CT_TRY(parse_level(spec, len, &next.level));
		}
		spec += len + (spec[len] == ',');
	}
	loudest = next.level;
	for (size_t i = 0; i < next.n_rules; i++) {
		if (next.rules[i].level > loudest)
			loudest = next.rules[i].level;
	}
	pthread_mutex_lock(&logger.lock);
	logger.levels = next;
	atomic_store_explicit(&logger.loudest, (int)loudest, memory_order_relaxed);
	pthread_mutex_unlock(&logger.lock);
	return CT_OK;
}

void ct_log_set_rank(int rank, int world)
{
	pthread_mutex_lock(&logger.lock);
	logger.rank = rank;
	logger.world = world;
	pthread_mutex_unlock(&logger.lock);
}

enum ct_status ct_log_open_file(const char *path)
{
	char *copy;
	int fd;

	CT_TRY(ct_file_open(path, CT_FILE_APPEND, &fd));
	copy = ct_strdup(path);
	if (!copy) {
		close(fd);
		return CT_NOMEM;
	}
	ct_log_close();
	pthread_mutex_lock(&logger.lock);
	logger.fd = fd;
	logger.path = copy;
	pthread_mutex_unlock(&logger.lock);
	return CT_OK;
}

void ct_log_close(void)
{
	pthread_mutex_lock(&logger.lock);
	if (logger.fd >= 0)
		close(logger.fd);
	logger.fd = -1;
	ct_free(logger.path);
	logger.path = NULL;
	pthread_mutex_unlock(&logger.lock);
}

enum ct_status ct_log_check(void)
{
	enum ct_status st = CT_OK;

	pthread_mutex_lock(&logger.lock);
	if (logger.fd >= 0)
		st = ct_file_still_at(logger.fd, logger.path);
	pthread_mutex_unlock(&logger.lock);
	return st;
}

void ct_log_set_before(void (*fn)(void *user), void *user)
{
	pthread_mutex_lock(&logger.lock);
	logger.before = fn;
	logger.before_user = user;
	pthread_mutex_unlock(&logger.lock);
}

bool ct_log_enabled(enum ct_log_level level, const char *component)
{
	enum ct_log_level limit;

	if ((int)level > atomic_load_explicit(&logger.loudest, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&logger.lock);
	limit = logger.levels.level;
	for (size_t i = 0; i < logger.levels.n_rules; i++) {
		if (strcmp(logger.levels.rules[i].component, component) == 0)
			limit = logger.levels.rules[i].level;
	}
	pthread_mutex_unlock(&logger.lock);
	return level <= limit;
}

void ct_log_show_info(enum ct_log_info when)
{
	pthread_mutex_lock(&logger.lock);
	logger.show_info = when;
	pthread_mutex_unlock(&logger.lock);
}

/* Called with the lock held. */
static bool on_terminal(enum ct_log_level level)
{
	if (level != CT_LOG_INFO || logger.show_info == CT_LOG_INFO_ALWAYS)
		return true;
	return logger.show_info == CT_LOG_INFO_WITHOUT_FILE && logger.fd < 0;
}

/* A line that cannot be written is lost: there is nowhere to report the error. */
static void write_line(int fd, const char *line, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, line, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		line += n;
		len -= (size_t)n;
	}
}

static size_t line_head(char *line, size_t size, enum ct_log_level level, const char *component)
{
	struct timespec now;
	struct tm tm;
	int n;

	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &tm);
	n = snprintf(line, size, "%02d:%02d:%02d.%03ld %s ", tm.tm_hour, tm.tm_min, tm.tm_sec, now.tv_nsec / 1000000,
		     level_names[level]);
	if (logger.rank >= 0)
		n += snprintf(line + n, size - (size_t)n, "%d/%d ", logger.rank, logger.world);
	n += snprintf(line + n, size - (size_t)n, "%.*s: ", COMPONENT_LEN - 1, component);
	return (size_t)n;
}

static _Thread_local bool off_terminal;

void ct_log_off_terminal(bool off)
{
	off_terminal = off;
}

/* Preserves errno. */
static void CT_PRINTF(4, 0)
	write_log(enum ct_log_level level, const char *component, bool terminal, const char *fmt, va_list ap)
{
	char text[MAX_TEXT], line[MAX_LINE], out[5];
	size_t text_len, len, i = 0;
	int saved = errno, n;

	CT_ASSERT((unsigned)level < CT_ARRAY_LEN(level_names));
	n = vsnprintf(text, sizeof(text), fmt, ap);
	if (n < 0)
		return;
	text_len = (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1;
	pthread_mutex_lock(&logger.lock);
	len = line_head(line, sizeof(line), level, component);
	while (i < text_len && len + (sizeof(out) - 1) + strlen("...\n") <= sizeof(line)) {
		i += ct_escape_next(text + i, text_len - i, out);
		memcpy(line + len, out, strlen(out));
		len += strlen(out);
	}
	if (i < (size_t)n) {
		memcpy(line + len, "...", 3);
		len += 3;
	}
	line[len++] = '\n';
	if (terminal && !off_terminal && on_terminal(level)) {
		if (logger.before)
			logger.before(logger.before_user);
		ct_output_write(STDERR_FILENO, line, len);
	}
	if (logger.fd >= 0)
		write_line(logger.fd, line, len);
	pthread_mutex_unlock(&logger.lock);
	errno = saved;
}

void ct_log_write(enum ct_log_level level, const char *component, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	write_log(level, component, true, fmt, ap);
	va_end(ap);
}

void ct_log_record(const char *component, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	write_log(CT_LOG_ERROR, component, false, fmt, ap);
	va_end(ap);
}
