/* The buffers of the transport and its loop. gloo_link.cc describes the protocol and the locks. */
#include "dist/comm/gloo/gloo_transport_impl.hh"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ctrain
{

void throw_errno(const char *what)
{
	throw std::runtime_error(std::string(what) + ": " + strerror(errno));
}

Descriptor::Descriptor(int opened, const char *what) : fd(opened)
{
	if (fd < 0)
		throw_errno(what);
}

Descriptor::~Descriptor()
{
	close(fd);
}

/* ---- buffers */

Buffer::~Buffer()
{
	bool pending;

	{
		std::lock_guard<std::mutex> lock(lock_);

		pending = pending_ > 0;
	}
	if (pending)
		transport_->stop();
}

void Buffer::send(int peer, uint64_t slot, size_t offset, size_t nbytes)
{
	transport_->getPair(peer)->send(this, slot, offset, length(offset, nbytes));
}

void Buffer::recv(int peer, uint64_t slot, size_t offset, size_t nbytes)
{
	transport_->getPair(peer)->recv(this, slot, offset, length(offset, nbytes));
}

void Buffer::begin()
{
	std::lock_guard<std::mutex> lock(lock_);

	pending_++;
}

void Buffer::end(Done *done, int peer, const std::string *why)
{
	std::lock_guard<std::mutex> lock(lock_);

	pending_--;
	if (done)
		done->peers.push_back(peer);
	else
		error_ = *why;
	/* The owner may destroy the buffer as soon as it can take the lock. */
	changed_.notify_all();
}

bool Buffer::wait(Done &done, int *rank, milliseconds timeout)
{
	std::unique_lock<std::mutex> lock(lock_);

	if (timeout == gloo::transport::kUnsetTimeout)
		timeout = transport_->getTimeout();
	if (!changed_.wait_for(lock, timeout, [&] { return !done.peers.empty() || !error_.empty() || done.aborted; }))
		throw TimeoutError("timed out waiting for another rank");
	if (!done.peers.empty()) {
		if (rank)
			*rank = done.peers.front();
		done.peers.pop_front();
		return true;
	}
	if (!done.aborted)
		throw gloo::IoException(error_);
	done.aborted = false;
	return false;
}

/* ---- the transport */

Transport::Transport(int own, int ranks, const int *fds, bool (*may_be_early)(uint64_t slot), milliseconds timeout)
	: gloo::transport::Context(own, ranks), epoll_(epoll_create1(EPOLL_CLOEXEC), "epoll_create1"),
	  wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")
{
	setTimeout(timeout);
	watch(EPOLL_CTL_ADD, wake_.fd, nullptr, EPOLLIN);
	for (int q = 0; q < size; q++) {
		if (q != rank)
			pairs_[q] = std::make_unique<Link>(*this, q, fds[q], may_be_early);
	}
	loop_ = std::thread([this] { run(); });
}

void Transport::watch(int op, int fd, Link *link, uint32_t events)
{
	epoll_event e = {};

	e.events = events;
	e.data.ptr = link;
	if (epoll_ctl(epoll_.fd, op, fd, &e) != 0)
		throw_errno("epoll_ctl");
}

void Transport::run()
{
	epoll_event events[64];

	while (!stopped_) {
		int n = epoll_wait(epoll_.fd, events, 64, -1);

		for (int i = 0; i < n; i++) {
			auto *link = static_cast<Link *>(events[i].data.ptr);

			if (!link) /* wake_ */
				continue;
			try {
				link->handle(events[i].events);
			} catch (const std::exception &e) {
				link->fail(e.what());
			}
		}
	}
}

void Transport::stop()
{
	const uint64_t one = 1;

	std::lock_guard<std::mutex> lock(stop_lock_);

	if (!loop_.joinable())
		return;
	stopped_ = true;
	(void)!::write(wake_.fd, &one, sizeof(one));
	loop_.join();
	for (auto &pair : pairs_) {
		if (pair)
			static_cast<Link *>(pair.get())->fail("the communicator has ended");
	}
}

std::shared_ptr<gloo::transport::Context> make_transport(int rank, int size, const int *fds,
							 bool (*may_be_early)(uint64_t slot), milliseconds timeout)
{
	return std::make_shared<Transport>(rank, size, fds, may_be_early, timeout);
}

} // namespace ctrain
