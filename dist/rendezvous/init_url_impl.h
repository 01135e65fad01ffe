/* Init URLs: env://, tcp://host:port, file:///path, and store://host:port for a store that ctrain's launcher serves. */
#ifndef CT_DIST_RENDEZVOUS_INIT_URL_IMPL_H
#define CT_DIST_RENDEZVOUS_INIT_URL_IMPL_H

#include "base/status.h"

enum ct_init_scheme { CT_INIT_ENV, CT_INIT_TCP, CT_INIT_FILE, CT_INIT_STORE };

struct ct_init_url {
	enum ct_init_scheme scheme;
	char host[200]; /* tcp, store; without the brackets of an IPv6 address */
	int port;
	char path[240]; /* file */
};

/* Parses an init URL. Fails with CT_USAGE; the message contains the URL and the reason. */
enum ct_status ct__init_url_parse(const char *text, struct ct_init_url *out) CT_MUST_CHECK;
/* Parses a port, 1 to 65535. `what` is its name in error messages ("MASTER_PORT"). */
enum ct_status ct__init_port_parse(const char *text, const char *what, int *out) CT_MUST_CHECK;
/* Writes "scheme://host:port", with brackets around an IPv6 address. Fails with CT_USAGE if the host name is too
 * long. */
enum ct_status ct__init_url_make(char *buf, size_t len, const char *scheme, const char *host, int port) CT_MUST_CHECK;

#endif
