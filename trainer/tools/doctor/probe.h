/* Connections between the nodes, outside the store: whether a node reaches another one, the difference of their clocks,
 * and the speed of the link.
 *
 * Every node runs a listener, which answers only clients that send the nonce of the run. A connection carries:
 *   client: nonce [32];  listener: nonce [32], node (4 bytes), wall-clock time in ns (8 bytes), all in host byte order
 *   client: any bytes, then the end of its stream;  listener: the number of these bytes (8 bytes) */
#ifndef CT_TRAINER_TOOLS_DOCTOR_PROBE_H
#define CT_TRAINER_TOOLS_DOCTOR_PROBE_H

#include "base/status.h"
#include "dist/net/net.h"
#include "trainer/tools/doctor/facts.h"

#define CT_PROBE_NONCE 32

typedef struct ct_probe_listener ct_probe_listener;

/* Listens on a free port of all interfaces, in a thread of its own. */
enum ct_status ct_probe_listen(int node, const char nonce[CT_PROBE_NONCE], const struct ct_port_range *ports,
			       ct_probe_listener **out) CT_MUST_CHECK;
int ct_probe_port(const ct_probe_listener *l);
void ct_probe_close(ct_probe_listener *l);

/* Connects to node `node` at addr, measures the round trip and the clock, and, for seconds > 0, the speed. If this
 * fails, out->reached is false and out->error has the reason. */
void ct_probe_connect(const char *addr, int port, int node, const char nonce[CT_PROBE_NONCE], double seconds,
		      struct ct_link_facts *out);

#endif
