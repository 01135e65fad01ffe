/* The list of members is sorted, so one pass over the ranks or nodes goes through it once (`at`). Missing ones in
 * sequence become a range, and so do ranks in sequence on one host. The loops continue to one index past the end, which
 * counts as present, to end the last range. A member that has left in an orderly way has joined. Nodes are only known
 * if the launcher of node 0 has published them; a roll that does not fit the run is ignored. */
#include "dist/rendezvous/roll_call.h"

#include <string.h>

#include "base/clock.h"
#include "dist/store/wire.h"

#define LIST_MAX 16 /* longer lists end with "..." */
#define READ_NS CT_SEC

/* A list of at most LIST_MAX items, separated by commas. */
struct list {
	struct ct_str text;
	int n;
};

/* Returns false if the list is full. The caller appends the item to l->text after true. */
static bool begin_item(struct list *l)
{
	if (l->n < LIST_MAX)
		ct_str_add(&l->text, l->n > 0 ? ", " : "");
	else if (l->n == LIST_MAX)
		ct_str_add(&l->text, ", ...");
	return l->n++ < LIST_MAX;
}

static void add_range(struct list *l, int from, int to)
{
	if (!begin_item(l))
		return;
	ct_str_addf(&l->text, "%d", from);
	if (to > from)
		ct_str_addf(&l->text, "-%d", to);
}

static void add_group(struct list *l, const char *host, int from, int to)
{
	if (!begin_item(l))
		return;
	ct_str_addf(&l->text, "%s(%d", host, from);
	if (to > from)
		ct_str_addf(&l->text, "-%d", to);
	ct_str_add(&l->text, ")");
}

void ct_roll_release(struct ct_roll *r)
{
	ct_free(r->first);
	*r = (struct ct_roll){0};
}

enum ct_status ct_roll_publish(const struct ct_roll *r, ct_store *s)
{
	struct ct_str b = {0};
	enum ct_status st;

	for (int k = 0; k <= r->n_nodes; k++)
		ct_wire_put_u32(&b, (uint32_t)r->first[k]);
	st = ct_str_status(&b);
	if (st == CT_OK)
		st = ct_store_set(s, CT_ROLL_KEY, ct_str_text(&b), b.len);
	ct_str_release(&b);
	return st;
}

enum ct_status ct_roll_read(ct_store *s, int world, struct ct_roll *out)
{
	struct ct_wire_reader r;
	char *text;
	size_t len;

	*out = (struct ct_roll){.world = world};
	if (ct_store_get(s, CT_ROLL_KEY, ct_deadline_in(READ_NS), &text, &len) != CT_OK) {
		ct_error_clear();
		return CT_OK;
	}
	r = (struct ct_wire_reader){.p = (const uint8_t *)text, .left = len};
	out->n_nodes = (int)(len / 4) - 1;
	out->first = out->n_nodes > 0 ? CT_NEW_ARRAY(int, len / 4) : NULL;
	for (int k = 0; out->first && k <= out->n_nodes; k++)
		out->first[k] = (int)ct_wire_u32(&r);
	ct_free(text);
	/* Only this run's launcher can have written it, but a number of ranks that does not match would be misleading.
	 */
	if (out->n_nodes <= 0 || !out->first || out->first[out->n_nodes] != world) {
		bool no_memory = out->n_nodes > 0 && !out->first;

		ct_roll_release(out);
		out->world = world;
		return no_memory ? CT_NOMEM : CT_OK;
	}
	return CT_OK;
}

/* Counts the connected members with ranks from `from` to `to` - 1. *at is the index at which the search continues. */
static int count_here(const struct ct_member_state *m, int n, int *at, int from, int to, const char **host)
{
	int here = 0;

	while (*at < n && m[*at].rank < from)
		++*at;
	for (; *at < n && m[*at].rank < to; ++*at) {
		if (!m[*at].connected && !m[*at].left)
			continue;
		*host = m[*at].host;
		here++;
	}
	return here;
}

static void call_nodes(const struct ct_roll *r, const struct ct_member_state *m, int n, struct ct_str *out)
{
	struct list present = {0}, missing = {0}, partial = {0};
	int at = 0, joined = 0, gap = -1;

	for (int k = 0; k <= r->n_nodes; k++) {
		const char *host = "";
		int want = k < r->n_nodes ? r->first[k + 1] - r->first[k] : 1;
		int here = k < r->n_nodes ? count_here(m, n, &at, r->first[k], r->first[k + 1], &host) : 1;

		if (here == 0 && gap < 0)
			gap = k;
		if (here > 0 && gap >= 0) {
			add_range(&missing, gap, k - 1);
			gap = -1;
		}
		if (k == r->n_nodes || here == 0)
			continue;
		joined += here == want;
		if (here == want && begin_item(&present))
			ct_str_addf(&present.text, "%s(%d)", host, k);
		if (here < want && begin_item(&partial))
			ct_str_addf(&partial.text, "%s(%d) %d of %d ranks", host, k, here, want);
	}
	ct_str_addf(out, "joined %d/%d", joined, r->n_nodes);
	if (present.n > 0)
		ct_str_addf(out, ": %s", ct_str_text(&present.text));
	if (partial.n > 0)
		ct_str_addf(out, "; in part: %s", ct_str_text(&partial.text));
	if (missing.n > 0)
		ct_str_addf(out, "; missing node rank %s", ct_str_text(&missing.text));
	ct_str_release(&present.text);
	ct_str_release(&partial.text);
	ct_str_release(&missing.text);
}

static void call_ranks(const struct ct_roll *r, const struct ct_member_state *m, int n, struct ct_str *out)
{
	struct list present = {0}, missing = {0};
	int at = 0, joined = 0, gap = -1, first = -1;
	const char *group = NULL; /* host of the ranks from `first` */

	for (int k = 0; k <= r->world; k++) {
		const char *host = NULL;
		bool here = k < r->world && count_here(m, n, &at, k, k + 1, &host) > 0;

		joined += here;
		if (group && (!here || strcmp(group, host) != 0)) {
			add_group(&present, group, first, k - 1);
			group = NULL;
		}
		if (here && !group) {
			group = host;
			first = k;
		}
		if (gap >= 0 && (here || k == r->world)) {
			add_range(&missing, gap, k - 1);
			gap = -1;
		}
		if (!here && gap < 0)
			gap = k;
	}
	ct_str_addf(out, "joined %d/%d ranks", joined, r->world);
	if (present.n > 0)
		ct_str_addf(out, ": %s", ct_str_text(&present.text));
	if (missing.n > 0)
		ct_str_addf(out, "; missing rank %s", ct_str_text(&missing.text));
	ct_str_release(&present.text);
	ct_str_release(&missing.text);
}

void ct_roll_call(const struct ct_roll *r, const struct ct_member_state *members, int n, struct ct_str *out)
{
	if (r->n_nodes > 0)
		call_nodes(r, members, n, out);
	else
		call_ranks(r, members, n, out);
}

bool ct_roll_complete(const struct ct_roll *r, const struct ct_member_state *members, int n)
{
	const char *host;
	int at = 0;

	return count_here(members, n, &at, 0, r->world, &host) == r->world;
}
