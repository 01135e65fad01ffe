/* The parts of the transport: buffers, links and the loop. */
#ifndef CT_DIST_COMM_GLOO_GLOO_TRANSPORT_IMPL_HH
#define CT_DIST_COMM_GLOO_GLOO_TRANSPORT_IMPL_HH

#include "dist/comm/gloo/gloo_transport.hh"

#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <unordered_map>

namespace ctrain
{

using std::chrono::milliseconds;

constexpr size_t kStaging = 8 << 10;

struct Header {
	uint64_t slot, len;
};

class Transport;

class Buffer final : public gloo::transport::UnboundBuffer
{
public:
	Buffer(std::shared_ptr<Transport> transport, void *p, size_t bytes)
		: gloo::transport::UnboundBuffer(p, bytes), transport_(std::move(transport))
	{
	}
	~Buffer() override;

	void send(int peer, uint64_t slot, size_t offset, size_t nbytes) override;
	void recv(int peer, uint64_t slot, size_t offset, size_t nbytes) override;
	void recv(std::vector<int>, uint64_t, size_t, size_t) override
	{
		throw std::invalid_argument("receiving from any rank is not implemented");
	}

	bool waitSend(int *rank, milliseconds timeout) override
	{
		return wait(sent_, rank, timeout);
	}

	bool waitRecv(int *rank, milliseconds timeout) override
	{
		return wait(received_, rank, timeout);
	}

	void abortWaitSend() override
	{
		sent_.abort(*this);
	}

	void abortWaitRecv() override
	{
		received_.abort(*this);
	}

	/* Called once for each operation: when it begins, and when it is done or has failed. */
	void begin();
	void sent(int peer)
	{
		end(&sent_, peer, nullptr);
	}
	void received(int peer)
	{
		end(&received_, peer, nullptr);
	}
	void failed(const std::string &why)
	{
		end(nullptr, -1, &why);
	}

private:
	/* The operations that are done and have not been waited for. */
	struct Done {
		std::deque<int> peers;
		bool aborted = false;

		void abort(Buffer &b)
		{
			std::lock_guard<std::mutex> lock(b.lock_);

			aborted = true;
			b.changed_.notify_all();
		}
	};

	bool wait(Done &done, int *rank, milliseconds timeout);
	void end(Done *done, int peer, const std::string *why);
	size_t length(size_t offset, size_t nbytes) const
	{
		return nbytes == kUnspecifiedByteCount ? size - offset : nbytes;
	}

	const std::shared_ptr<Transport> transport_;
	std::mutex lock_;
	std::condition_variable changed_;
	Done sent_, received_;
	std::string error_;
	int pending_ = 0;
};

[[noreturn]] void throw_errno(const char *what);

struct Descriptor {
	const int fd;

	Descriptor(int opened, const char *what);
	Descriptor(const Descriptor &) = delete;
	~Descriptor();
};

/* A send or a receive. */
struct Operation {
	Buffer *buffer;
	char *p;
	size_t len;
};

/* The connection to one rank. */
class Link final : public gloo::transport::Pair
{
public:
	Link(Transport &transport, int peer, int fd, bool (*may_be_early)(uint64_t slot));

	void send(gloo::transport::UnboundBuffer *b, uint64_t slot, size_t offset, size_t nbytes) override;
	void recv(gloo::transport::UnboundBuffer *b, uint64_t slot, size_t offset, size_t nbytes) override;
	/* Ends the connection, in both directions. */
	void close() override;

	/* Overrides a function that gloo has had since 2025. */
	bool isConnected()
	{
		return true;
	}

	/* For the loop, or when it has ended. */
	void handle(uint32_t events);
	void fail(const std::string &why);

	/* gloo calls these only if it makes the connections itself, or for buffers of one pair, which no algorithm of
	 * ctrain uses. */
	const gloo::transport::Address &address() const override
	{
		throw std::logic_error("a link has no address");
	}
	void connect(const std::vector<char> &) override
	{
		throw std::logic_error("a link is connected already");
	}
	void setSync(bool, bool) override
	{
		throw std::logic_error("a link is asynchronous");
	}
	std::unique_ptr<gloo::transport::Buffer> createSendBuffer(int, void *, size_t) override
	{
		throw std::logic_error("a link has no buffers of its own");
	}
	std::unique_ptr<gloo::transport::Buffer> createRecvBuffer(int, void *, size_t) override
	{
		throw std::logic_error("a link has no buffers of its own");
	}

private:
	/* A message that is being sent. */
	struct Outgoing {
		Header header;
		Operation op;
		size_t done; /* bytes of header and operation that have been sent */
	};

	void check() const;
	bool is_announced(uint64_t slot, size_t len) const;
	void announce(uint64_t slot);
	void transmit(const Header &header, const Operation &op);
	bool flush(Outgoing &o);
	void update_events();

	void read();
	bool fill();
	bool begin_message();
	bool end_message();
	void ready(uint64_t slot);

	Transport &transport_;
	const int peer_, fd_;
	bool (*const may_be_early_)(uint64_t slot);

	std::mutex rx_lock_;
	std::unordered_map<uint64_t, std::deque<Operation>> receives_; /* by slot */
	std::unordered_map<uint64_t, std::deque<std::vector<char>>> early_;
	/* Used by the loop only. */
	char staging_[kStaging];
	size_t staged_from_ = 0, staged_to_ = 0;
	bool may_have_more_ = false; /* the last read filled its room */
	bool reading_ = false;       /* a message, and not a header */
	uint64_t slot_ = 0;
	Operation into_{}; /* its buffer is null if the message is early */
	std::vector<char> kept_;
	size_t n_read_ = 0;

	std::mutex tx_lock_;
	std::deque<Outgoing> queue_;
	std::unordered_map<uint64_t, std::deque<Operation>> waiting_; /* sends whose receive is not posted, by slot */
	std::unordered_map<uint64_t, size_t> announced_;              /* receives without a send, by slot */

	std::string error_; /* written with both locks, once */
};

class Transport final : public gloo::transport::Context, public std::enable_shared_from_this<Transport>
{
public:
	Transport(int own, int ranks, const int *fds, bool (*may_be_early)(uint64_t slot), milliseconds timeout);
	~Transport() override
	{
		stop();
	}

	std::unique_ptr<gloo::transport::Pair> &createPair(int) override
	{
		throw std::logic_error("all links exist already");
	}

	std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void *p, size_t bytes) override
	{
		return std::make_unique<Buffer>(shared_from_this(), p, bytes);
	}

	/* Ends the loop and all operations. */
	void stop();
	/* `op` is that of epoll_ctl. */
	void watch(int op, int fd, Link *link, uint32_t events);

private:
	void run();

	const Descriptor epoll_, wake_;
	std::atomic<bool> stopped_{false};
	std::mutex stop_lock_;
	std::thread loop_;
};

} // namespace ctrain

#endif
