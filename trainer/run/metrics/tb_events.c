/* The few protobuf messages that are needed are encoded by hand. Field numbers and wire types come from event.proto
 * and summary.proto, and a record is built in a buffer of fixed size, except for the larger values of tb_summary.c.
 * TensorBoard stops reading a file at an incomplete record, so a record that could not be written completely is cut
 * off again. File names have seconds and the host, as in TensorFlow; a number is appended if such a file exists,
 * because two runs must never write to the same file. A resumed run begins with a session start, which makes
 * TensorBoard drop events of later steps in older files. Integers are written in the byte order of the machine, which
 * must be little-endian. */
#include "trainer/run/metrics/tb_events_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/protobuf.h"

#define MAX_FILES_A_SECOND 1000

/* Field numbers in event.proto and summary.proto. */
enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_FILE_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION_LOG = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };

struct ct_tb {
	char *path;
	int fd;
};

uint32_t ct__crc32c(const void *p, size_t n)
{
	const uint8_t *bytes = p;
	uint32_t crc = ~0u;

	/* Bit by bit is fast enough: images are written once per epoch, and other records have a few hundred bytes. */
	for (size_t i = 0; i < n; i++) {
		crc ^= bytes[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return ~crc;
}

uint32_t ct__crc32c_masked(const void *p, size_t n)
{
	uint32_t crc = ct__crc32c(p, n);

	return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void start_event(struct ct_str *event, uint64_t step)
{
	ct_pb_add_double(event, EVENT_WALL_TIME, ct_wall_seconds());
	if (step > 0)
		ct_pb_add_int(event, EVENT_STEP, (int64_t)step);
}

/* Appends a complete record, or nothing: a reader would stop at a part of one. */
static enum ct_status append(ct_tb *tb, const void *record, size_t n)
{
	const off_t begin = lseek(tb->fd, 0, SEEK_END);
	enum ct_status st = ct_fd_write_all(tb->fd, record, n, tb->path);

	if (st < 0 && begin >= 0 && ftruncate(tb->fd, begin) == 0)
		(void)lseek(tb->fd, begin, SEEK_SET);
	return st;
}

/* Writes the record of an event, and releases the event. */
static enum ct_status write_event(ct_tb *tb, struct ct_str *event)
{
	const uint64_t len = event->len;
	const uint32_t event_crc = ct__crc32c_masked(ct_str_text(event), event->len);
	const uint32_t len_crc = ct__crc32c_masked(&len, sizeof(len));
	struct ct_str record = {.failed = event->failed};

	ct_str_add_bytes(&record, &len, sizeof(len));
	ct_str_add_bytes(&record, &len_crc, sizeof(len_crc));
	ct_str_add_bytes(&record, ct_str_text(event), event->len);
	ct_str_add_bytes(&record, &event_crc, sizeof(event_crc));
	ct_str_release(event);
	enum ct_status st = ct_str_status(&record);
	if (st == CT_OK)
		st = append(tb, record.s, record.len);
	ct_str_release(&record);
	return st;
}

static enum ct_status write_preface(ct_tb *tb, uint64_t resume_step)
{
	struct ct_str first = {0}, resumed = {0}, start = {0};

	start_event(&first, 0);
	ct_pb_add_string(&first, EVENT_FILE_VERSION, "brain.Event:2");
	CT_TRY(write_event(tb, &first));
	if (resume_step == 0)
		return CT_OK;
	/* TensorBoard drops events of this step and later in older files. */
	start_event(&resumed, resume_step + 1);
	ct_pb_add_int(&start, SESSION_STATUS, SESSION_START);
	ct_pb_add_message(&resumed, EVENT_SESSION_LOG, &start);
	return write_event(tb, &resumed);
}

/* A link counts as existing, even if its target does not exist. */
static bool exists(const char *path)
{
	struct stat sb;

	return lstat(path, &sb) == 0;
}

/* Creates a file that no other process uses, even if two runs start in the same second. */
static enum ct_status create_file(ct_tb *tb, const char *dir)
{
	unsigned long long now = (unsigned long long)ct_wall_seconds();
	char host[128] = "localhost";
	enum ct_status st = CT_OK;

	if (gethostname(host, sizeof(host)) == 0)
		host[sizeof(host) - 1] = '\0';
	for (int i = 0; i < MAX_FILES_A_SECOND; i++) {
		ct_free(tb->path);
		CT_TRY_ALLOC(tb->path = i ? ct_strfmt("%s/events.out.tfevents.%010llu.%s.%d", dir, now, host, i)
					  : ct_strfmt("%s/events.out.tfevents.%010llu.%s", dir, now, host));
		st = ct_file_open(tb->path, CT_FILE_NEW, &tb->fd);
		if (st == CT_OK || !exists(tb->path))
			break;
	}
	return st;
}

enum ct_status ct__tb_open(const char *dir, uint64_t resume_step, ct_tb **out)
{
	enum ct_status st;
	ct_tb *tb;

	CT_TRY(ct_dir_make(dir));
	CT_TRY_ALLOC(tb = CT_NEW(ct_tb));
	tb->fd = -1;
	CT_TRY_GOTO(create_file(tb, dir), st, fail);
	CT_TRY_GOTO(write_preface(tb, resume_step), st, fail);
	*out = tb;
	return CT_OK;

fail:
	ct__tb_close(tb);
	return st;
}

void ct__tb_close(ct_tb *tb)
{
	if (!tb)
		return;
	if (tb->fd >= 0)
		close(tb->fd);
	ct_free(tb->path);
	ct_free(tb);
}

/* Writes an event with a summary, and releases the summary. */
static enum ct_status write_summary(ct_tb *tb, uint64_t step, struct ct_str *summary)
{
	struct ct_str event = {0};

	start_event(&event, step);
	ct_pb_add_message(&event, EVENT_SUMMARY, summary);
	CT_TRY(write_event(tb, &event));
	return ct_file_still_at(tb->fd, tb->path);
}

enum ct_status ct__tb_scalars(ct_tb *tb, uint64_t step, const struct ct_tb_scalar *scalars, size_t n)
{
	struct ct_str summary = {0}, value = {0};

	for (size_t i = 0; i < n; i++) {
		ct_pb_add_string(&value, VALUE_TAG, scalars[i].tag);
		ct_pb_add_float(&value, VALUE_SIMPLE, (float)scalars[i].value);
		ct_pb_add_message(&summary, SUMMARY_VALUE, &value);
	}
	return write_summary(tb, step, &summary);
}

enum ct_status ct__tb_value(ct_tb *tb, uint64_t step, const char *value, size_t n)
{
	struct ct_str summary = {0};

	ct_pb_add_bytes(&summary, SUMMARY_VALUE, value, n);
	return write_summary(tb, step, &summary);
}
