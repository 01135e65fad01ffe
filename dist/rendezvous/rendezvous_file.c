/* The file has lines "name value" between a first line with the version and the line "end", so a file that is not
 * complete is recognized on every file system. It is written like a secret (secret.h), because the nonce is one. A file
 * that exists is replaced only if it is empty or a rendezvous file: any other one belongs to the user. It is removed
 * only as long as it has the nonce of this run, since a new run may have replaced it. Of the addresses, those of IPv4
 * come first; link-local ones of IPv6 are omitted, because they have no meaning on other hosts. */
#include "dist/rendezvous/rendezvous_file_impl.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "dist/net/net.h"
#include "dist/rendezvous/init_url_impl.h"
#include "dist/rendezvous/secret.h"
#include "dist/store/wire.h"

#define FIRST_LINE "ctrain-rendezvous 1"
#define MAX_BYTES 8192

/* Adds the addresses that other hosts may be able to reach: IPv4 first, then IPv6 addresses that are not link-local. */
static void add_addresses(struct ct_rendezvous_file *m, const struct ifaddrs *list, int family)
{
	for (const struct ifaddrs *i = list; i && m->n_addrs < CT_RENDEZVOUS_MAX_ADDRS; i = i->ifa_next) {
		struct sockaddr_storage a = {0};
		char *text = m->addrs[m->n_addrs];

		if (!i->ifa_addr || i->ifa_addr->sa_family != family || !(i->ifa_flags & IFF_UP) ||
		    i->ifa_flags & IFF_LOOPBACK)
			continue;
		memcpy(&a, i->ifa_addr, family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
		if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)&a)->sin6_addr))
			continue;
		if (ct_net_addr_text(&a, text, sizeof(m->addrs[0])) == CT_OK)
			m->n_addrs++;
		else
			ct_error_clear();
	}
}

enum ct_status ct__rendezvous_file_init(struct ct_rendezvous_file *m, const char *run_id, const char *net_key, int port)
{
	struct ifaddrs *list = NULL;

	*m = (struct ct_rendezvous_file){.port = port};
	ct_wire_copy(m->run_id, sizeof(m->run_id), run_id);
	ct_wire_copy(m->net_key, sizeof(m->net_key), net_key);
	CT_TRY(ct_token_make(m->nonce));
	if (getifaddrs(&list) != 0)
		return CT_FAIL(CT_COMM, "cannot list this host's addresses: %s", strerror(errno));
	add_addresses(m, list, AF_INET);
	add_addresses(m, list, AF_INET6);
	freeifaddrs(list);
	return CT_OK;
}

static enum ct_status foreign(enum ct_status st, const char *path)
{
	CT_FAIL(st, "%s is not a ctrain rendezvous file", path);
	return ct_error_hint("use a path for file:// that does not exist yet");
}

/* Parses a line "name value". False if it has another name or the value is too long. */
static bool field(const char *line, size_t len, const char *name, char *buf, size_t size)
{
	size_t n = strlen(name);

	if (len <= n + 1 || memcmp(line, name, n) != 0 || line[n] != ' ' || len - n - 1 >= size)
		return false;
	memcpy(buf, line + n + 1, len - n - 1);
	buf[len - n - 1] = '\0';
	return true;
}

static bool parse_line(const char *p, size_t len, struct ct_rendezvous_file *m)
{
	char port[16];

	if (field(p, len, "run", m->run_id, sizeof(m->run_id)) || field(p, len, "nonce", m->nonce, sizeof(m->nonce)) ||
	    field(p, len, "net", m->net_key, sizeof(m->net_key)))
		return true;
	if (field(p, len, "port", port, sizeof(port)))
		return ct__init_port_parse(port, "port", &m->port) == CT_OK;
	if (m->n_addrs < CT_RENDEZVOUS_MAX_ADDRS && field(p, len, "addr", m->addrs[m->n_addrs], sizeof(m->addrs[0]))) {
		m->n_addrs++;
		return true;
	}
	return false;
}

enum ct_status ct__rendezvous_file_parse(const char *text, const char *path, struct ct_rendezvous_file *out)
{
	struct ct_rendezvous_file m = {0};
	const char *p = text;
	size_t len = strcspn(p, "\n");
	bool ended = false;

	if (len != strlen(FIRST_LINE) || memcmp(p, FIRST_LINE, len) != 0)
		return foreign(CT_DATA, path);
	while (p[len] == '\n' && p[len + 1] != '\0' && !ended) {
		p += len + 1;
		len = strcspn(p, "\n");
		ended = len == 3 && memcmp(p, "end", 3) == 0;
		if (!ended && !parse_line(p, len, &m))
			return foreign(CT_DATA, path);
	}
	if (!ended || m.port == 0 || m.nonce[0] == '\0')
		return foreign(CT_DATA, path);
	*out = m;
	return CT_OK;
}

static enum ct_status parse_text(const char *text, size_t len, const char *path, struct ct_rendezvous_file *out)
{
	if (len == 0)
		return CT_FAIL(CT_NOT_FOUND, "%s is empty", path);
	return ct__rendezvous_file_parse(text, path, out);
}

enum ct_status ct__rendezvous_file_read(const char *path, struct ct_rendezvous_file *out)
{
	enum ct_status st;
	char *text;
	size_t len;

	st = ct_secret_file_read(path, MAX_BYTES, &text, &len);
	if (st == CT_DATA)
		return foreign(CT_DATA, path);
	CT_TRY(st);
	st = parse_text(text, len, path, out);
	ct_free(text);
	return st;
}

/* Checks that the file may be replaced. Its permissions do not matter for this. */
static enum ct_status check_replaceable(const char *path)
{
	struct ct_rendezvous_file old;
	enum ct_status st;
	char *text;
	size_t len;

	st = ct_file_read(path, MAX_BYTES, &text, &len);
	CT_TRY(st);
	st = parse_text(text, len, path, &old);
	ct_free(text);
	return st;
}

enum ct_status ct__rendezvous_file_publish(const struct ct_rendezvous_file *m, const char *path)
{
	struct ct_str b = {0};
	enum ct_status st = check_replaceable(path);

	/* Replace an old rendezvous file, or an empty file, which mktemp creates. Any other file belongs to the
	 * user. */
	if (st != CT_OK && st != CT_NOT_FOUND)
		return st == CT_DATA ? foreign(CT_USAGE, path) : st;
	ct_str_addf(&b, FIRST_LINE "\nrun %s\nnonce %s\nnet %s\nport %d\n", m->run_id, m->nonce, m->net_key, m->port);
	for (int i = 0; i < m->n_addrs; i++)
		ct_str_addf(&b, "addr %s\n", m->addrs[i]);
	ct_str_add(&b, "end\n");
	st = ct_str_status(&b);
	if (st == CT_OK)
		st = ct_file_replace_private(path, b.s, b.len);
	ct_str_release(&b);
	if (st == CT_NOT_FOUND)
		return CT_FAIL(CT_IO, "cannot create the rendezvous file: %s", ct_error_message());
	return st;
}

void ct__rendezvous_file_remove(const char *path, const char *nonce)
{
	struct ct_rendezvous_file m;
	struct ct_error before;

	ct_error_save(&before);
	if (ct__rendezvous_file_read(path, &m) == CT_OK && strcmp(m.nonce, nonce) == 0)
		(void)unlink(path);
	(void)ct_error_restore(&before);
}
