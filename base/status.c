/* The chain is a fixed buffer for each thread, so that an error can be reported when memory is exhausted, and errors of
 * several threads do not mix. A function that sets an error formats its message into another buffer first: its
 * arguments often point into the current message. Strings that are too long are cut at a character boundary and end
 * with "...". Of the frames the first ones are kept, because they are nearest to the cause. A copy for another process
 * contains no pointers and no bytes of earlier messages. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct chain {
	struct {
		enum ct_status status;
		enum ct_reason reason;
		int cause_rank, cause_pid;
		char message[CT_ERROR_MESSAGE_MAX];
		char hint[512];
	} e;
	char tag[CT_ERROR_TAG_MAX];
	size_t tag_at; /* position of the tag in the message */
	char frames[2048];
	size_t frames_len;
};

static _Thread_local struct chain chain;

/* If a string was truncated to the size of its buffer, cuts it at a character boundary and appends "...". `wanted` is
 * the return value of snprintf. */
static void mark_cut(char *buf, size_t size, int wanted)
{
	size_t end = size - 4;

	if (wanted >= 0 && (size_t)wanted < size)
		return;
	while (end > 0 && ((unsigned char)buf[end] & 0xC0) == 0x80)
		end--;
	memcpy(buf + end, "...", 4);
}

const char *ct_status_name(enum ct_status st)
{
	switch (st) {
#define STATUS_NAME(name, value, code, text) \
	case CT_##name:                      \
		return #name;
		CT_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
	}
	return "BUG";
}

const char *ct_status_text(enum ct_status st)
{
	switch (st) {
#define STATUS_TEXT(name, value, code, text) \
	case CT_##name:                      \
		return text;
		CT_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
	}
	return ct_status_text(CT_BUG);
}

int ct_status_exit_code(enum ct_status st)
{
	switch (st) {
#define STATUS_CODE(name, value, code, text) \
	case CT_##name:                      \
		return code;
		CT_STATUS_LIST(STATUS_CODE)
#undef STATUS_CODE
	}
	return ct_status_exit_code(CT_BUG);
}

enum ct_status ct_status_of_exit_code(int code)
{
#define STATUS_OF(name, value, exit_code, text)  \
	if (code == (exit_code) && (value) <= 0) \
		return CT_##name;
	CT_STATUS_LIST(STATUS_OF)
#undef STATUS_OF
	return CT_BUG;
}

bool ct_status_is_failure(int value)
{
	switch (value) {
#define STATUS_IS_FAILURE(name, number, code, text) \
	case number:                                \
		return (number) < 0;
		CT_STATUS_LIST(STATUS_IS_FAILURE)
#undef STATUS_IS_FAILURE
	default:
		return false;
	}
}

static enum ct_status begin_chain(enum ct_status st, const char *file, int line, const char *text)
{
	ct_error_clear();
	chain.e.status = st < 0 ? st : CT_BUG;
	memcpy(chain.e.message, text, strlen(text) + 1);
	ct_error_frame(file, line, ct_status_name(chain.e.status));
	return chain.e.status;
}

enum ct_status ct_error_set(enum ct_status st, const char *file, int line, const char *fmt, ...)
{
	char text[sizeof(chain.e.message)];
	va_list ap;
	int n;

	/* Format into another buffer first, because the arguments may point to the old message. */
	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	mark_cut(text, sizeof(text), n);
	return begin_chain(st, file, line, text);
}

/* Records the tag, unless the message was cut in front of its end. */
static void set_tag(const char *tag, size_t at)
{
	const size_t n = strlen(tag);

	if (n >= sizeof(chain.tag) || at + n > strlen(chain.e.message)) {
		chain.tag[0] = '\0';
		chain.tag_at = 0;
		return;
	}
	memmove(chain.tag, tag, n + 1);
	chain.tag_at = at;
}

enum ct_status ct_error_set_tagged(enum ct_status st, const char *file, int line, const char *where, const char *tag,
				   const char *fmt, ...)
{
	char text[sizeof(chain.e.message)], front[sizeof(chain.e.message) / 2];
	va_list ap;
	int n;

	n = snprintf(front, sizeof(front), "%s%s%s: ", where ? where : "", where ? ": " : "", tag);
	mark_cut(front, sizeof(front), n);
	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	mark_cut(text, sizeof(text), n);
	begin_chain(st, file, line, front);
	n = snprintf(chain.e.message, sizeof(chain.e.message), "%s%s", front, text);
	mark_cut(chain.e.message, sizeof(chain.e.message), n);
	set_tag(tag, where ? strlen(where) + 2 : 0);
	return chain.e.status;
}

enum ct_status ct_error_wrap(const char *fmt, ...)
{
	char front[sizeof(chain.e.message) / 2];
	char text[sizeof(chain.e.message)];
	va_list ap;
	int n;

	if (chain.e.status == CT_OK)
		CT_FAIL(CT_BUG, "a failure without a message");
	va_start(ap, fmt);
	n = vsnprintf(front, sizeof(front), fmt, ap);
	va_end(ap);
	mark_cut(front, sizeof(front), n);
	n = snprintf(text, sizeof(text), "%s: %s", front, chain.e.message);
	mark_cut(text, sizeof(text), n);
	memcpy(chain.e.message, text, strlen(text) + 1);
	if (chain.tag[0])
		set_tag(chain.tag, strlen(front) + 2 + chain.tag_at);
	return chain.e.status;
}

enum ct_status ct_error_hint(const char *fmt, ...)
{
	char more[sizeof(chain.e.hint)];
	char text[sizeof(chain.e.hint)];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(more, sizeof(more), fmt, ap);
	va_end(ap);
	mark_cut(more, sizeof(more), n);
	n = snprintf(text, sizeof(text), "%s%s%s", chain.e.hint, chain.e.hint[0] ? "; " : "", more);
	mark_cut(text, sizeof(text), n);
	memcpy(chain.e.hint, text, sizeof(text));
	return chain.e.status;
}

enum ct_status ct_error_because(enum ct_reason reason)
{
	chain.e.reason = reason;
	return chain.e.status;
}

enum ct_status ct_error_caused_by(int rank, int pid)
{
	chain.e.cause_rank = rank;
	chain.e.cause_pid = pid;
	return chain.e.status;
}

enum ct_reason ct_error_reason(void)
{
	return chain.e.reason;
}

void ct_error_frame(const char *file, int line, const char *func)
{
	size_t left = sizeof(chain.frames) - chain.frames_len;
	int n = snprintf(chain.frames + chain.frames_len, left, "%s:%d: %s\n", file, line, func);

	/* A frame that does not fit is dropped; the first ones are the most useful. */
	if (n < 0 || (size_t)n >= left)
		chain.frames[chain.frames_len] = '\0';
	else
		chain.frames_len += (size_t)n;
}

const char *ct_error_message(void)
{
	return chain.e.message;
}

const char *ct_error_hint_text(void)
{
	return chain.e.hint;
}

const char *ct_error_tag(void)
{
	return chain.tag;
}

size_t ct_error_tag_at(void)
{
	return chain.tag_at;
}

const char *ct_error_frames(void)
{
	return chain.frames;
}

enum ct_status ct_error_status(void)
{
	return chain.e.status;
}

void ct_error_clear(void)
{
	chain.e.status = CT_OK;
	chain.e.reason = CT_REASON_NONE;
	chain.e.cause_rank = chain.e.cause_pid = 0;
	chain.e.message[0] = '\0';
	chain.e.hint[0] = '\0';
	chain.tag[0] = '\0';
	chain.tag_at = 0;
	chain.frames[0] = '\0';
	chain.frames_len = 0;
}

void ct_error_save(struct ct_error *out)
{
	/* Zero it first: the copy may be sent to another process, which must not see old bytes after the NUL. */
	memset(out, 0, sizeof(*out));
	out->status = chain.e.status;
	out->reason = chain.e.reason;
	out->cause_rank = chain.e.cause_rank;
	out->cause_pid = chain.e.cause_pid;
	mark_cut(out->message, sizeof(out->message),
		 snprintf(out->message, sizeof(out->message), "%s", chain.e.message));
	memcpy(out->hint, chain.e.hint, strlen(chain.e.hint));
}

enum ct_status ct_error_restore(const struct ct_error *e)
{
	ct_error_clear();
	chain.e.status = e->status;
	chain.e.reason = e->reason;
	chain.e.cause_rank = e->cause_rank;
	chain.e.cause_pid = e->cause_pid;
	snprintf(chain.e.message, sizeof(chain.e.message), "%.*s", (int)sizeof(e->message) - 1, e->message);
	snprintf(chain.e.hint, sizeof(chain.e.hint), "%.*s", (int)sizeof(e->hint) - 1, e->hint);
	return e->status;
}

void ct_assert_failed(const char *what, const char *file, int line)
{
	fprintf(stderr, "%s:%d: bug in ctrain: assertion failed: %s\n", file, line, what);
	abort();
}
