/* Writes the HTML of a report. Everything that comes from files of a run is escaped. */
#ifndef CT_TRAINER_TOOLS_REPORT_HTML_IMPL_H
#define CT_TRAINER_TOOLS_REPORT_HTML_IMPL_H

#include "base/json.h"

struct ct__chart;

/* A page that is being written. */
struct ct__html {
	struct ct_str out;
	ct_json *charts; /* the values of all charts, from which the script shows those at the pointer */
};

/* Appends the string with the characters that have a meaning in HTML replaced. Control bytes and invalid UTF-8 are
 * written as \xNN. */
void ct__html_text(struct ct_str *out, const char *text);
enum ct_status ct__html_begin(struct ct__html *h, const char *title) CT_MUST_CHECK;
/* Completes the page in h->out. */
enum ct_status ct__html_end(struct ct__html *h) CT_MUST_CHECK;
void ct__html_release(struct ct__html *h);
/* Adds the chart as SVG of this size, with its title and legend above it. */
enum ct_status ct__html_chart(struct ct__html *h, const struct ct__chart *c, double width, double height) CT_MUST_CHECK;
/* Adds <TAG>text</TAG>, escaped. */
void ct__html_element(struct ct__html *h, const char *tag, const char *text);
/* Appends the URL "data:TYPE;base64,..." */
void ct__html_data_url(struct ct_str *out, const char *type, const void *bytes, size_t n);

extern const char *const ct__page_style, *const ct__page_script;

#endif
