/* All nodes of a run use one run directory: a node with a directory of its own would not find the checkpoints of the
 * run, and start at step 0 while another one continues; and its launcher could take the lock by which the leader of a
 * job is elected. Rank 0 creates a file with a random name, which no rank has looked up before, so that no cache of a
 * network file system knows that it is missing. The others look for it until it appears, and rank 0 removes it when all
 * have found it. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "trainer/run/session/session_world_impl.h"

/* How long a file system may take to show a new file on another node; at most half of the time that is left. */
#define VISIBLE_NS (5 * CT_SEC)

static void key_of(const struct ct_session *s, char key[64])
{
	snprintf(key, 64, "start/run_dir/%d", s->world.id.restart);
}

static enum ct_status create(const struct ct_session *s, const char *name)
{
	char *path = ct_path_join(s->run.dir, name);
	enum ct_status st;
	char key[64];
	int fd = -1;

	CT_TRY_ALLOC(path);
	st = ct_file_open(path, CT_FILE_NEW, &fd);
	ct_net_close(&fd);
	ct_free(path);
	CT_TRY(st);
	key_of(s, key);
	return ct_store_set(s->world.store, key, name, strlen(name));
}

static enum ct_status not_the_same(const struct ct_session *s)
{
	CT_FAIL(CT_IO,
		"the run directory \"%s\" on %s is not that of rank 0 on %s: a file that rank 0 has created does not appear",
		s->run.dir, s->world.peers[s->world.id.rank].host, s->world.peers[0].host);
	return ct_error_hint("set run.dir to a directory of a file system that all nodes mount, for example by NFS; in "
			     "containers, mount it in each of them");
}

static enum ct_status find(const struct ct_session *s, int64_t deadline_ns)
{
	struct ct_backoff pause = {.next_ns = CT_MS, .max_ns = 200 * CT_MS};
	int64_t visible_ns;
	char key[64], *name, *path;
	size_t len;
	bool found;

	key_of(s, key);
	CT_TRY(ct_store_get(s->world.store, key, deadline_ns, &name, &len));
	path = ct_path_join(s->run.dir, name);
	ct_free(name);
	CT_TRY_ALLOC(path);
	visible_ns = (deadline_ns - ct_now_ns()) / 2;
	visible_ns = ct_deadline_in(visible_ns < VISIBLE_NS ? visible_ns : VISIBLE_NS);
	while (!(found = ct_file_exists(path)) && ct_now_ns() < visible_ns)
		(void)poll(NULL, 0, ct_deadline_poll_ms(ct_deadline_in(ct_backoff_ns(&pause))));
	ct_free(path);
	return found ? CT_OK : not_the_same(s);
}

enum ct_status ct__session_check_run_dir(struct ct_session *s)
{
	const int64_t deadline = ct_deadline_in((int64_t)(s->cfg->dist.rendezvous_timeout * 1e9));
	char token[CT_TOKEN_HEX], *name, *path;
	enum ct_status st;

	if (s->world.n_hosts <= 1)
		return CT_OK;
	if (s->world.id.rank > 0) {
		CT_TRY(find(s, deadline));
		return ct_world_agree(&s->world, "start", "run directory=found\n", deadline);
	}
	CT_TRY(ct_token_make(token));
	CT_TRY_ALLOC(name = ct_strfmt(".shared-%.16s", token));
	st = create(s, name);
	if (st == CT_OK)
		st = ct_world_agree(&s->world, "start", "run directory=found\n", deadline);
	path = ct_path_join(s->run.dir, name);
	if (path)
		(void)unlink(path);
	ct_free(path);
	ct_free(name);
	return st;
}
