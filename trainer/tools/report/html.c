/* Names of classes, files and hosts come from files that anyone may have changed. There are two barriers: every string
 * passes through ct__html_text, and a Content-Security-Policy allows only the style, images and the script whose digest
 * it names, so that even an error here would not execute anything. The values of the charts are JSON in an element that
 * is not executed; '<' is escaped in it, so that no string can end the element. The page needs no other file. */
#include "trainer/tools/report/html_impl.h"

#include <string.h>

#include "base/hash/sha256.h"
#include "trainer/tools/report/chart_impl.h"

#define MAX_TEXT 4096

void ct__html_text(struct ct_str *out, const char *text)
{
	struct ct_str plain = {0};

	ct_str_add_escaped(&plain, text, strlen(text), MAX_TEXT);
	for (const char *s = ct_str_text(&plain); *s; s++) {
		switch (*s) {
		case '&':
			ct_str_add(out, "&amp;");
			break;
		case '<':
			ct_str_add(out, "&lt;");
			break;
		case '>':
			ct_str_add(out, "&gt;");
			break;
		case '"':
			ct_str_add(out, "&quot;");
			break;
		case '\'':
			ct_str_add(out, "&#39;");
			break;
		default:
			ct_str_add_bytes(out, s, 1);
		}
	}
	out->failed |= plain.failed;
	ct_str_release(&plain);
}

static void add_base64(struct ct_str *out, const uint8_t *p, size_t n)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < n; i += 3) {
		const uint32_t v =
			(uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0);
		const char four[4] = {digits[v >> 18], digits[v >> 12 & 63], i + 1 < n ? digits[v >> 6 & 63] : '=',
				      i + 2 < n ? digits[v & 63] : '='};

		ct_str_add_bytes(out, four, 4);
	}
}

void ct__html_data_url(struct ct_str *out, const char *type, const void *bytes, size_t n)
{
	ct_str_addf(out, "data:%s;base64,", type);
	add_base64(out, bytes, n);
}

/* The policy allows nothing but what is in the file: no network, and no script except ours, whatever names the file
 * contains. */
enum ct_status ct__html_begin(struct ct__html *h, const char *title)
{
	uint8_t digest[32];
	struct ct_sha256 sha;

	*h = (struct ct__html){.charts = ct_json_array()};
	ct_sha256_init(&sha);
	ct_sha256_update(&sha, ct__page_script, strlen(ct__page_script));
	ct_sha256_final(&sha, digest);
	ct_str_add(&h->out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
			    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
			    "style-src 'unsafe-inline'; script-src 'sha256-");
	add_base64(&h->out, digest, sizeof(digest));
	ct_str_add(&h->out,
		   "'\">\n<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
		   "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n");
	ct__html_element(h, "title", title);
	ct_str_addf(&h->out, "<style>\n%s</style></head><body><main>\n", ct__page_style);
	return h->charts ? ct_str_status(&h->out) : CT_NOMEM;
}

enum ct_status ct__html_end(struct ct__html *h)
{
	struct ct_str json = {0};
	enum ct_status st = ct_json_dump(h->charts, false, &json);

	ct_str_add(&h->out, "</main>\n<script type=\"application/json\" id=\"charts\">");
	for (const char *s = ct_str_text(&json); *s; s++) {
		if (*s == '<') /* nothing in a string may end the script element */
			ct_str_add(&h->out, "\\u003c");
		else
			ct_str_add_bytes(&h->out, s, 1);
	}
	ct_str_addf(&h->out, "</script>\n<script>%s</script>\n</body></html>\n", ct__page_script);
	ct_str_release(&json);
	return st == CT_OK ? ct_str_status(&h->out) : st;
}

void ct__html_release(struct ct__html *h)
{
	ct_json_destroy(h->charts);
	ct_str_release(&h->out);
	memset(h, 0, sizeof(*h));
}

void ct__html_element(struct ct__html *h, const char *tag, const char *text)
{
	ct_str_addf(&h->out, "<%s>", tag);
	ct__html_text(&h->out, text);
	ct_str_addf(&h->out, "</%s>", tag);
}

static ct_json *values_of(const struct ct__series *s, const struct ct__series *below, bool y)
{
	ct_json *list = ct_json_array();

	for (size_t i = 0; i < s->n; i++) {
		const double v = y ? s->p[i].y - (below ? below->p[i].y : 0) : s->p[i].x;

		ct_json_push_f64(list, v);
	}
	return list;
}

/* The values of a chart for the script. */
static ct_json *chart_values(const struct ct__chart *c, const struct ct__plot *plot)
{
	const double area[] = {plot->x, plot->y, plot->w, plot->h, plot->x0, plot->x1};
	ct_json *chart = ct_json_object(), *list = ct_json_array(), *at = ct_json_array();

	for (size_t i = 0; i < CT_ARRAY_LEN(area); i++)
		ct_json_push_f64(at, area[i]);
	ct_json_set_str(chart, "title", c->title);
	ct_json_set_bool(chart, "share", c->share);
	ct_json_set(chart, "plot", at);
	for (int i = 0; i < c->n; i++) {
		const struct ct__series *s = &c->series[i];
		ct_json *one = ct_json_object();

		ct_json_set_str(one, "name", s->name ? s->name : "");
		ct_json_set_i64(one, "ink", s->ink);
		ct_json_set(one, "x", values_of(s, NULL, false));
		ct_json_set(one, "y", values_of(s, s->bar && i + 1 < c->n ? s + 1 : NULL, true));
		ct_json_push(list, one);
	}
	ct_json_set(chart, "series", list);
	return chart;
}

enum ct_status ct__html_chart(struct ct__html *h, const struct ct__chart *c, double width, double height)
{
	struct ct__svg svg;
	struct ct__plot plot;

	ct__svg_init(&svg, &h->out);
	ct_str_add(&h->out, "<figure class=\"card\"><figcaption>");
	ct__html_element(h, "b", c->title);
	const bool bars = c->n > 0 && c->series[0].bar; /* the first series is at the top of the bars */
	for (int i = 0; i < c->n; i++) {
		const struct ct__series *s = &c->series[bars ? c->n - 1 - i : i];

		if (!s->name)
			continue;
		ct_str_addf(&h->out, "<span><i class=\"chip b%d\"></i>", s->ink);
		ct__html_text(&h->out, s->name);
		ct_str_add(&h->out, "</span>");
	}
	ct_str_addf(
		&h->out,
		"</figcaption><svg class=\"chart\" viewBox=\"0 0 %g %g\" role=\"img\" data-chart=\"%zu\" aria-label=\"",
		width, height, ct_json_len(h->charts));
	ct__html_text(&h->out, c->title);
	ct_str_add(&h->out, "\">");
	ct__chart_draw_plot(c, 0, 0, width, height, &svg.canvas, &plot);
	ct_str_add(&h->out, "</svg></figure>\n");
	ct_json_push(h->charts, chart_values(c, &plot));
	return ct_str_status(&h->out);
}
