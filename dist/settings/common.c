/* Settings that should be the same for all ranks. Rules that are marked as local, such as names of interfaces, are not
 * compared; unknown names are. Each difference is reported once, by the first rank that differs from rank 0: settings
 * that rank 0 has are found in its lines, and the others in the lines of that rank. */
#include <string.h>

#include "dist/settings/settings_impl.h"

enum ct_status ct_settings_common(struct ct_str *lines)
{
	struct ct_settings all;

	CT_TRY(ct_settings_read("NCCL_", &all));
	for (size_t i = 0; i < all.n; i++) {
		const struct setting_rule *rule = ct__setting_rule(all.all[i].name);

		if (!rule || !rule->local)
			ct_str_addf(lines, "%s=%s\n", all.all[i].name, all.all[i].value);
	}
	ct_settings_release(&all);
	return ct_str_status(lines);
}

/* One line without its newline. */
struct line {
	const char *p;
	size_t len, name;
};

static bool next_line(const char **at, struct line *l)
{
	if (!**at)
		return false;
	l->p = *at;
	l->len = strcspn(l->p, "\n");
	l->name = strcspn(l->p, "=\n");
	*at += l->len + (l->p[l->len] == '\n');
	return true;
}

/* Finds the line with the name of l. */
static bool find(const char *lines, const struct line *l, struct line *out)
{
	while (next_line(&lines, out)) {
		if (out->name == l->name && memcmp(out->p, l->p, l->name) == 0)
			return true;
	}
	return false;
}

static bool same(const char *a, const char *b, const struct line *name)
{
	struct line x, y;
	const bool has_x = find(a, name, &x), has_y = find(b, name, &y);

	return has_x == has_y && (!has_x || (x.len == y.len && memcmp(x.p, y.p, x.len) == 0));
}

static void add_value(const char *lines, const struct line *name, struct ct_str *out)
{
	struct line l;

	if (!find(lines, name, &l)) {
		ct_str_add(out, "not set");
		return;
	}
	ct_str_add(out, "\"");
	ct_str_add_escaped(out, l.p + l.name + 1, l.len - l.name - 1, 60);
	ct_str_add(out, "\"");
}

static void describe(const char *const *lines, int n, int first, const struct line *name, struct ct_str *out)
{
	int others = 0;

	for (int q = first + 1; q < n; q++)
		others += !same(lines[0], lines[q], name);
	ct_str_add_bytes(out, name->p, name->name);
	ct_str_add(out, " is ");
	add_value(lines[0], name, out);
	ct_str_add(out, " on rank 0, but ");
	add_value(lines[first], name, out);
	ct_str_addf(out, " on rank %d", first);
	if (others)
		ct_str_addf(out, "; %d other rank%s also differ%s from rank 0", others, ct_plural(others),
			    others == 1 ? "s" : "");
	ct_str_add(out, "\n");
}

/* Reports the settings in the lines of rank `of` that rank `first` is the first one to have differently. */
static void compare(const char *const *lines, int n, int first, int of, struct ct_str *out)
{
	const char *at = lines[of];
	struct line l, unused;

	while (next_line(&at, &l)) {
		int q = 1;

		if (of != 0 && find(lines[0], &l, &unused))
			continue; /* reported with the lines of rank 0 */
		while (q < first && same(lines[0], lines[q], &l))
			q++;
		if (q == first && !same(lines[0], lines[first], &l))
			describe(lines, n, first, &l, out);
	}
}

void ct_settings_compare(const char *const *lines, int n, struct ct_str *out)
{
	for (int q = 1; q < n; q++) {
		if (strcmp(lines[0], lines[q]) == 0)
			continue;
		compare(lines, n, q, 0, out);
		compare(lines, n, q, q, out);
	}
}
