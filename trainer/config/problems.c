#include "trainer/config/problems_impl.h"

#include <string.h>

#define MAX_WHERE 4200 /* a path of any length and a position */

void ct__problems_add(struct ct_problems *p, const char *where, const char *fmt, ...)
{
	va_list ap;

	p->n++;
	if (p->n > CT_MAX_PROBLEMS)
		return;
	if (p->text.len > 0)
		ct_str_add(&p->text, "\n");
	ct_str_add_escaped(&p->text, where, strlen(where), MAX_WHERE);
	ct_str_add(&p->text, ": error: ");
	va_start(ap, fmt);
	ct_str_addv(&p->text, fmt, ap);
	va_end(ap);
}

enum ct_status ct__problems_status(const struct ct_problems *p)
{
	enum ct_status st;

	if (p->n == 0)
		return CT_OK;
	CT_TRY(ct_str_status(&p->text));
	if (p->n <= CT_MAX_PROBLEMS)
		return CT_FAIL(CT_CONFIG, "%s", ct_str_text(&p->text));
	st = CT_FAIL(CT_CONFIG, "%s\nand %zu more problems", ct_str_text(&p->text), p->n - CT_MAX_PROBLEMS);
	return st;
}

void ct__problems_release(struct ct_problems *p)
{
	ct_str_release(&p->text);
	p->n = 0;
}
