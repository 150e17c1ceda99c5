/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

extern int early_fd; /* of the file that EARLY names, or -1 */
