/* Conversion to integers, ranges of integers, and numbers with units. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "trainer/config/value_impl.h"

struct unit {
	const char *name;
	double factor;
};
static const struct unit mib_units[] = {{"KiB", 1.0 / 1024}, {"MiB", 1}, {"GiB", 1024}};
static const struct unit second_units[] = {{"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}};

static bool in_range(struct ct_setter *t, const struct ct_yaml_node *v, double x)
{
	const struct ct_key *k = t->k;
	struct ct_str b = {0};

	if ((k->flags & CT_KEY_OPEN_LO ? x > k->lo : x >= k->lo) &&
	    (k->flags & CT_KEY_OPEN_HI ? x < k->hi : x <= k->hi))
		return true;
	ct__key_add_range(k, &b);
	ct__value_complain(t, v, "is out of range (%s)", ct_str_text(&b));
	ct_str_release(&b);
	return false;
}

int64_t ct__value_int(struct ct_setter *t, const struct ct_yaml_node *v)
{
	const char *digits = v->text + (v->text[0] == '-' || v->text[0] == '+');
	bool automatic = t->k->flags & CT_KEY_AUTO;
	struct ct_str b = {0};
	int64_t x = 0;
	double f;

	if (automatic && strcmp(v->text, "auto") == 0)
		return CT_CFG_AUTO;
	if (strlen(v->text) == v->len && ct_parse_i64(v->text, &x) == CT_OK) {
		if (digits[0] == '0' && digits[1])
			ct__value_complain(t, v,
					   "starts with 0; remove the leading 0 (octal numbers are not supported)");
		else
			in_range(t, v, (double)x);
		return x;
	}
	if (automatic)
		ct_str_add(&b, " or auto");
	if (ct_parse_f64(v->text, &f) == CT_OK && f == floor(f) && fabs(f) < 1e15)
		ct_str_addf(&b, "; write %.0f", f);
	ct__value_complain(t, v, "is not an integer%s", ct_str_text(&b));
	ct_str_release(&b);
	return 0;
}

void ct__value_range(struct ct_setter *t, const struct ct_yaml_node *v, int64_t slot[2])
{
	int64_t min = 0, max = 0;
	int end;

	if (sscanf(v->text, "%5" SCNd64 "..%5" SCNd64 "%n", &min, &max, &end) < 2 &&
	    sscanf(v->text, "%5" SCNd64 ":%5" SCNd64 "%n", &min, &max, &end) < 2)
		max = ct__value_int(t, v);
	else if ((size_t)end != v->len || min > max)
		ct__value_complain(t, v, "is not a range MIN..MAX, such as 2..4");
	else
		(void)(in_range(t, v, (double)min) && in_range(t, v, (double)max));
	slot[0] = max;
	slot[1] = min < max ? min : 0;
}

/* Reads a number, which may be followed by one of the units. */
static double read_number(struct ct_setter *t, const struct ct_yaml_node *v, const struct unit *units, size_t n_units)
{
	char number[64];
	size_t len = strspn(v->text, "+-.0123456789eE");
	double factor = 1, x = 0;
	bool ok = strlen(v->text) == v->len && len > 0 && len < sizeof(number);

	if (ok && v->text[len]) {
		const char *unit = v->text + len + (v->text[len] == ' ');
		size_t i = 0;

		while (i < n_units && strcmp(units[i].name, unit) != 0)
			i++;
		ok = i < n_units;
		factor = ok ? units[i].factor : 1;
	}
	if (ok) {
		memcpy(number, v->text, len);
		number[len] = '\0';
		ok = ct_parse_f64(number, &x) == CT_OK;
	}
	if (!ok) {
		struct ct_str b = {0};

		if (t->k->flags & CT_KEY_AUTO)
			ct_str_add(&b, " or auto");
		for (size_t i = 0; i < n_units; i++)
			ct_str_addf(&b, "%s%s", i > 0 ? ", " : "; the units are ", units[i].name);
		ct__value_complain(t, v, "is not a number%s", ct_str_text(&b));
		ct_str_release(&b);
		return 0;
	}
	in_range(t, v, x * factor);
	return x * factor;
}

double ct__value_float(struct ct_setter *t, const struct ct_yaml_node *v)
{
	if (t->k->flags & CT_KEY_AUTO && strcmp(v->text, "auto") == 0)
		return CT_CFG_AUTO;
	if (t->k->type == CT_KEY_MIB)
		return read_number(t, v, mib_units, CT_ARRAY_LEN(mib_units));
	if (t->k->type == CT_KEY_SECONDS)
		return read_number(t, v, second_units, CT_ARRAY_LEN(second_units));
	return read_number(t, v, NULL, 0);
}
