#include "data/files/label.h"

#include <strings.h>

bool ct_image_extension(const char *ext, size_t n)
{
	return (n == 3 && (strncasecmp(ext, "jpg", 3) == 0 || strncasecmp(ext, "png", 3) == 0)) ||
	       (n == 4 && strncasecmp(ext, "jpeg", 4) == 0);
}

static bool is_whitespace(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

bool ct_label_parse(const char *text, size_t n, int32_t *out)
{
	int32_t v = 0;
	size_t i = 0;

	while (n > 0 && is_whitespace(text[n - 1]))
		n--;
	while (i < n && is_whitespace(text[i]))
		i++;
	if (i == n)
		return false;
	for (; i < n; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		v = 10 * v + (text[i] - '0');
		if (v > CT_MAX_LABEL)
			return false;
	}
	*out = v;
	return true;
}
