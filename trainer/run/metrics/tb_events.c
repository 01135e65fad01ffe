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

#define MAX_SCALARS 16
#define MAX_TAG 63
#define MAX_EVENT 2048
#define MAX_FILES_A_SECOND 1000

/* Field numbers in event.proto and summary.proto. */
enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_FILE_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION_LOG = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct ct_tb {
	char *path;
	int fd;
};

/* A message under construction; MAX_SCALARS and MAX_TAG bound its size. */
struct message {
	uint8_t bytes[MAX_EVENT];
	size_t len;
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

static void put_bytes(struct message *m, const void *p, size_t n)
{
	CT_ASSERT(n <= sizeof(m->bytes) - m->len);
	memcpy(m->bytes + m->len, p, n);
	m->len += n;
}

static void put_varint(struct message *m, uint64_t v)
{
	uint8_t b;

	for (; v >= 0x80; v >>= 7) {
		b = (uint8_t)(v | 0x80);
		put_bytes(m, &b, 1);
	}
	b = (uint8_t)v;
	put_bytes(m, &b, 1);
}

static void put_key(struct message *m, unsigned field, unsigned wire)
{
	put_varint(m, field << 3 | wire);
}

static void put_block(struct message *m, unsigned field, const void *p, size_t n)
{
	put_key(m, field, WIRE_BYTES);
	put_varint(m, n);
	put_bytes(m, p, n);
}

static void start_event(struct message *m, uint64_t step)
{
	double now = ct_wall_seconds();

	m->len = 0;
	put_key(m, EVENT_WALL_TIME, WIRE_64);
	put_bytes(m, &now, sizeof(now));
	if (step > 0) {
		put_key(m, EVENT_STEP, WIRE_VARINT);
		put_varint(m, step);
	}
}

/* Makes a record [n + 16] of the event [n]. */
static void make_record(const uint8_t *event, size_t n, uint8_t *record)
{
	uint64_t len = n;
	uint32_t crc;

	memcpy(record, &len, 8);
	crc = ct__crc32c_masked(record, 8);
	memcpy(record + 8, &crc, 4);
	memcpy(record + 12, event, n);
	crc = ct__crc32c_masked(event, n);
	memcpy(record + 12 + n, &crc, 4);
}

/* Appends a complete record, or nothing: a reader would stop at a part of one. */
static enum ct_status append(ct_tb *tb, const uint8_t *record, size_t n)
{
	const off_t begin = lseek(tb->fd, 0, SEEK_END);
	enum ct_status st = ct_fd_write_all(tb->fd, record, n, tb->path);

	if (st < 0 && begin >= 0 && ftruncate(tb->fd, begin) == 0)
		(void)lseek(tb->fd, begin, SEEK_SET);
	return st;
}

static enum ct_status write_record(ct_tb *tb, const struct message *m)
{
	uint8_t record[sizeof(m->bytes) + 16];

	make_record(m->bytes, m->len, record);
	return append(tb, record, m->len + 16);
}

static enum ct_status write_preface(ct_tb *tb, uint64_t resume_step)
{
	static const char version[] = "brain.Event:2";
	static const uint8_t start[] = {SESSION_STATUS << 3 | WIRE_VARINT, SESSION_START};
	struct message m;

	start_event(&m, 0);
	put_block(&m, EVENT_FILE_VERSION, version, strlen(version));
	CT_TRY(write_record(tb, &m));
	if (resume_step == 0)
		return CT_OK;
	/* TensorBoard drops events of this step and later in older files. */
	start_event(&m, resume_step + 1);
	put_block(&m, EVENT_SESSION_LOG, start, sizeof(start));
	return write_record(tb, &m);
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

enum ct_status ct__tb_scalars(ct_tb *tb, uint64_t step, const struct ct_tb_scalar *scalars, size_t n)
{
	struct message event, summary = {.len = 0}, value;

	CT_ASSERT(n <= MAX_SCALARS);
	for (size_t i = 0; i < n; i++) {
		float simple = (float)scalars[i].value;

		CT_ASSERT(strlen(scalars[i].tag) <= MAX_TAG);
		value.len = 0;
		put_block(&value, VALUE_TAG, scalars[i].tag, strlen(scalars[i].tag));
		put_key(&value, VALUE_SIMPLE, WIRE_32);
		put_bytes(&value, &simple, sizeof(simple));
		put_block(&summary, SUMMARY_VALUE, value.bytes, value.len);
	}
	start_event(&event, step);
	put_block(&event, EVENT_SUMMARY, summary.bytes, summary.len);
	CT_TRY(write_record(tb, &event));
	return ct_file_still_at(tb->fd, tb->path);
}

/* A value may be much larger than a message of scalars. */
enum ct_status ct__tb_value(ct_tb *tb, uint64_t step, const char *value, size_t n)
{
	struct message head, summary = {.len = 0};
	uint8_t *event, *record;

	put_key(&summary, SUMMARY_VALUE, WIRE_BYTES);
	put_varint(&summary, n);
	start_event(&head, step);
	put_key(&head, EVENT_SUMMARY, WIRE_BYTES);
	put_varint(&head, summary.len + n);
	put_bytes(&head, summary.bytes, summary.len);
	const size_t len = head.len + n;
	CT_TRY_ALLOC(event = ct_calloc(2 * len + 16, 1));
	record = event + len;
	memcpy(event, head.bytes, head.len);
	memcpy(event + head.len, value, n);
	make_record(event, len, record);
	enum ct_status st = append(tb, record, len + 16);
	ct_free(event);
	return st < 0 ? st : ct_file_still_at(tb->fd, tb->path);
}
