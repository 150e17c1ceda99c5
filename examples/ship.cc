/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Ships a log to a file as it grows, across restarts of the daemon and its own.
 *
 *	c++ -std=c++17 -o ship ship.cc $(pkg-config --cflags --libs pmemlogd)
 *	ship LOG FILE		until SIGTERM or SIGINT
 *
 * LSNs are byte offsets, so the file's size is all that has to be remembered: it is where to go on. What is printed,
 * one number a line, is how far the file is on disk.
 */
#include <pmemlogd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>
#include <memory>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

namespace
{

struct deleter {
	void operator()(pmemlogd *c) const
	{
		pmemlogd_disconnect(c);
	}
	void operator()(pmemlogd_log *l) const
	{
		pmemlogd_close(l);
	}
	void operator()(pmemlogd_cursor *c) const
	{
		pmemlogd_cursor_free(c);
	}
};
template <class T> using owned = std::unique_ptr<T, deleter>;

volatile std::sig_atomic_t stopping;

/* 0 and more as it is; a negative errno is thrown. */
int must(int r, const char *what)
{
	if (r < 0)
		throw std::system_error(-r, std::generic_category(), what);
	return r;
}

class file
{
      public:
	explicit file(const char *path) : fd_(::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600))
	{
		if (fd_ < 0)
			must(-errno, path);
	}
	~file()
	{
		::close(fd_);
	}
	file(const file &) = delete;
	file &operator=(const file &) = delete;

	uint64_t size() const
	{
		off_t end = ::lseek(fd_, 0, SEEK_END);

		return static_cast<uint64_t>(end < 0 ? must(-errno, "lseek") : end);
	}

	/* A record at its own offset: one that a killed run wrote in part is written again, whole. */
	void put(const pmemlogd_record &r) const
	{
		auto *from = static_cast<const char *>(r.data);

		for (size_t done = 0; done < r.length;) {
			ssize_t n = ::pwrite(fd_, from + done, r.length - done,
					     static_cast<off_t>(r.lsn + done));

			if (n < 0 && errno != EINTR)
				must(-errno, "pwrite");
			done += n > 0 ? static_cast<size_t>(n) : 0;
		}
	}

	void sync() const
	{
		if (::fdatasync(fd_) < 0)
			must(-errno, "fdatasync");
	}

      private:
	int fd_;
};

/* Again while there is no daemon: then nothing but waiting helps. */
template <class Call> void patiently(Call call, const char *what)
{
	int r;

	while ((r = call()) == -ETIMEDOUT && !stopping)
		::usleep(100000);
	must(r, what);
}

void follow(pmemlogd_cursor *cursor, const file &to)
{
	pmemlogd_record record;
	bool dirty = false;

	while (!stopping) {
		/* One sync for all that is there; then, and only then, sleep. */
		int r = pmemlogd_next(cursor, &record, dirty ? 0 : 200);

		if (r == 1) {
			to.put(record);
			dirty = true;
		} else if (r == -ETIMEDOUT) {
			/* The next record is on disk by now, and the daemon, which hands it out, away. */
			::usleep(50000);
		} else {
			must(r, "next");
			if (dirty) {
				to.sync();
				std::cout << pmemlogd_cursor_lsn(cursor) << std::endl;
			}
			dirty = false;
		}
	}
	if (dirty)
		to.sync();
}

void ship(const char *name, const char *path)
{
	pmemlogd *connection = nullptr;
	pmemlogd_log *log = nullptr;
	pmemlogd_cursor *cursor = nullptr;

	patiently([&] { return pmemlogd_connect(&connection, nullptr); }, "pmemlogd");
	owned<pmemlogd> c(connection);
	patiently([&] { return pmemlogd_open(connection, name, PMEMLOGD_READ_ONLY, 0, 0, &log); },
		  name);
	owned<pmemlogd_log> l(log);
	file to(path);
	/* -ERANGE: the log was trimmed beyond the file's end; -ENXIO: the file is of another log. */
	patiently([&] { return pmemlogd_cursor_new(log, to.size(), &cursor); }, path);
	owned<pmemlogd_cursor> at(cursor);
	follow(cursor, to);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 3) {
		std::cerr << "usage: ship LOG FILE\n";
		return 64;
	}
	std::signal(SIGTERM, [](int) { stopping = 1; });
	std::signal(SIGINT, [](int) { stopping = 1; });
	try {
		ship(argv[1], argv[2]);
	} catch (const std::exception &e) {
		std::cerr << "ship: " << e.what() << "\n";
		return 1;
	}
	return 0;
}
