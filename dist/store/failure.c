#include "dist/store/failure.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "dist/store/wire.h"

void ct_member_text(char *buf, size_t len, int rank, int pid, const char *host)
{
	char pid_text[24] = "";

	if (pid > 0)
		snprintf(pid_text, sizeof(pid_text), "pid %d ", pid);
	if (rank < 0)
		snprintf(buf, len, "the launcher (%son host %.63s)", pid_text, host);
	else
		snprintf(buf, len, "rank %d (%son host %.63s)", rank, pid_text, host);
}

void ct_where_text(char *buf, size_t len, const struct ct_position *at)
{
	char doing[CT_POSITION_TEXT];

	ct_position_text(doing, sizeof(doing), at);
	buf[0] = '\0';
	if (at->collective >= 0)
		snprintf(buf, len, "; last seen at collective %" PRId64 "%s%s", at->collective, doing[0] ? ", " : "",
			 doing);
	else if (doing[0])
		snprintf(buf, len, "; last seen %s%s", at->step < 0 ? "" : "at ", doing);
}

void ct_failure_set(struct ct_failure *f, const struct ct_member_state *m, enum ct_status status, const char *fmt, ...)
{
	char who[CT_MEMBER_TEXT], where[CT_WHERE_TEXT], what[sizeof(f->message)];
	struct ct_str text = {0};
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	*f = (struct ct_failure){.rank = m->rank, .pid = m->pid, .status = status, .at = m->at};
	ct_wire_copy(f->host, sizeof(f->host), m->host);
	ct_member_text(who, sizeof(who), m->rank, m->pid, m->host);
	ct_where_text(where, sizeof(where), &m->at);
	ct_str_addf(&text, "%s %s%s", who, what, where);
	ct_wire_copy(f->message, sizeof(f->message), ct_str_text(&text));
	ct_str_release(&text);
}

bool ct_errno_is_silence(int err)
{
	return err == ETIMEDOUT || err == EHOSTUNREACH || err == ENETUNREACH || err == EHOSTDOWN || err == ENETDOWN;
}

void ct_failure_server_gone(struct ct_failure *f, int rank, int pid, const char *host, int err)
{
	struct ct_member_state m = {.rank = rank, .pid = pid, .at = CT_POSITION_UNKNOWN};

	ct_wire_copy(m.host, sizeof(m.host), host);
	if (ct_errno_is_silence(err)) {
		ct_failure_set(f, &m, CT_PEER_LOST, "has stopped responding on the network (%s)", strerror(err));
		snprintf(f->hint, sizeof(f->hint), "check that host %s is up and that the network to it works", host);
	} else {
		ct_failure_set(f, &m, CT_PEER_LOST, "is gone, and so is the store of this run, which it served");
		snprintf(f->hint, sizeof(f->hint), "it was killed, crashed or failed: see its own output");
	}
}

enum ct_status ct_failure_raise(const struct ct_failure *f)
{
	CT_FAIL(CT_PEER_LOST, "%s", f->message);
	if (f->hint[0])
		ct_error_hint("%s", f->hint);
	return ct_error_caused_by(f->rank, f->pid);
}
