/* Files are listed as they are named; a file that does not exist becomes an unreadable image later, so one wrong name
 * does not end a long list. Directories are read depth first in bytewise order, so the output has the same order on
 * every machine. Links are followed, so the depth is limited. */
#include "trainer/tools/predict/image_list.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/file.h"

enum { MAX_DEPTH = 32 }; /* links can form cycles */

/* Takes path. */
static enum ct_status add_path(struct ct_image_list *l, char *path)
{
	size_t cap = l->cap;
	char **grown = path ? ct_array_grow(l->paths, l->n, &cap, sizeof(*l->paths)) : NULL;

	if (!grown || l->n >= UINT32_MAX / 4) {
		ct_free(path);
		return CT_FAIL(CT_NOMEM, "the list of images does not fit into memory");
	}
	l->paths = grown;
	l->cap = (uint32_t)cap;
	l->paths[l->n++] = path;
	return CT_OK;
}

static bool is_image(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0 || strcasecmp(dot, ".png") == 0);
}

static bool is_directory(const char *path)
{
	struct stat sb;

	return stat(path, &sb) == 0 && S_ISDIR(sb.st_mode);
}

static enum ct_status add_directory(struct ct_image_list *l, const char *path, int depth);

static enum ct_status add_entry(struct ct_image_list *l, const char *directory, const char *name, int depth)
{
	enum ct_status st = CT_OK;
	char *path;

	if (name[0] == '.')
		return CT_OK;
	CT_TRY_ALLOC(path = ct_path_join(directory, name));
	if (is_directory(path))
		st = add_directory(l, path, depth + 1);
	else if (is_image(name))
		return add_path(l, path);
	ct_free(path);
	return st;
}

static enum ct_status add_directory(struct ct_image_list *l, const char *path, int depth)
{
	enum ct_status st = CT_OK;
	char **names = NULL;
	size_t n = 0;

	if (depth > MAX_DEPTH)
		return CT_FAIL(CT_DATA, "%s: directories are nested more than %d deep", path, MAX_DEPTH);
	CT_TRY(ct_dir_list(path, &names, &n));
	for (size_t i = 0; i < n && st == CT_OK; i++)
		st = add_entry(l, path, names[i], depth);
	ct_dir_list_free(names, n);
	return st;
}

static enum ct_status add_lines(struct ct_image_list *l)
{
	struct ct_str text = {0};
	enum ct_status st;
	char chunk[4096];
	size_t n;

	while ((n = fread(chunk, 1, sizeof(chunk), stdin)) > 0)
		ct_str_add_bytes(&text, chunk, n);
	st = ferror(stdin) ? CT_FAIL(CT_IO, "cannot read standard input: %m") : ct_str_status(&text);
	for (const char *line = ct_str_text(&text); *line && st == CT_OK; line += strspn(line, "\r\n")) {
		n = strcspn(line, "\r\n");
		if (n > 0)
			st = add_path(l, ct_strndup(line, n));
		line += n;
	}
	ct_str_release(&text);
	return st;
}

enum ct_status ct_image_list_add(struct ct_image_list *l, const char *what)
{
	const uint32_t before = l->n;

	if (strcmp(what, "-") == 0)
		return add_lines(l);
	if (!is_directory(what)) /* a missing file is reported later as an unreadable image */
		return add_path(l, ct_strdup(what));
	CT_TRY(add_directory(l, what, 0));
	if (l->n == before)
		return CT_FAIL(CT_DATA, "directory %s contains no .jpg, .jpeg or .png files", what);
	return CT_OK;
}

void ct_image_list_release(struct ct_image_list *l)
{
	for (uint32_t i = 0; i < l->n; i++)
		ct_free(l->paths[i]);
	ct_free(l->paths);
	*l = (struct ct_image_list){0};
}
