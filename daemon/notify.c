/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/notify.h"

#include <inttypes.h>

#include <systemd/sd-daemon.h>

#include "base/sys.h"

void notify_ready(const char *status)
{
	(void)sd_notifyf(0, "READY=1\nSTATUS=%s", status);
}

void notify_reloading(void)
{
	/* systemd from 253 on wants to know when, to tell this reload from the one before */
	(void)sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, now_monotonic_ns() / 1000);
}

void notify_stopping(void)
{
	(void)sd_notify(0, "STOPPING=1\nSTATUS=Stopping: making everything durable in its files");
}

void notify_status(const char *status)
{
	(void)sd_notifyf(0, "STATUS=%s", status);
}

void notify_extend(uint64_t usec)
{
	(void)sd_notifyf(0, "EXTEND_TIMEOUT_USEC=%" PRIu64, usec);
}
