"""The numbers of the system calls, and which a worker with an untrusted model may make.

A number is a pair: x86-64, arm64; `None` where that processor has no such call. What is in
none of the tables does not exist for the worker (`ENOSYS`), so that a call which a future
kernel adds is not allowed by accident, and C libraries fall back to what they know.
"""

from __future__ import annotations

from collections.abc import Mapping

Numbers = Mapping[str, tuple[int | None, int | None]]

# fmt: off
# Harmless whatever their arguments are.
ALLOWED: Numbers = {
    # Descriptors that are already open: reading, writing, waiting, duplicating.
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67),
    "pwrite64": (18, 68), "preadv": (295, 69), "pwritev": (296, 70), "preadv2": (327, 286),
    "pwritev2": (328, 287), "lseek": (8, 62), "close": (3, 57), "close_range": (436, 436),
    "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24), "pipe": (22, None), "pipe2": (293, 59),
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72),
    "epoll_create": (213, None), "epoll_create1": (291, 20), "epoll_ctl": (233, 21),
    "epoll_wait": (232, None), "epoll_pwait": (281, 22), "epoll_pwait2": (441, 441),
    "eventfd": (284, None), "eventfd2": (290, 19), "signalfd": (282, None), "signalfd4": (289, 74),
    "timerfd_create": (283, 85), "timerfd_settime": (286, 86), "timerfd_gettime": (287, 87),
    "flock": (73, 32), "fsync": (74, 82), "fdatasync": (75, 83), "ftruncate": (77, 46),
    "fallocate": (285, 47), "fadvise64": (221, 223), "readahead": (187, 213), "sendfile": (40, 71),
    "copy_file_range": (326, 285),
    # Looking at files. What may be opened is Landlock's question.
    "stat": (4, None), "fstat": (5, 80), "lstat": (6, None), "newfstatat": (262, 79),
    "statx": (332, 291), "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439),
    "readlink": (89, None), "readlinkat": (267, 78), "getdents": (78, None),
    "getdents64": (217, 61), "getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50),
    "statfs": (137, 43), "fstatfs": (138, 44), "umask": (95, 166),
    # Sockets that are already connected.
    "recvfrom": (45, 207), "sendmsg": (46, 211), "recvmsg": (47, 212), "recvmmsg": (299, 243),
    "shutdown": (48, 210), "getsockname": (51, 204), "getpeername": (52, 205),
    "getsockopt": (55, 209),
    # Memory of its own.
    "brk": (12, 214), "mmap": (9, 222), "munmap": (11, 215), "mprotect": (10, 226),
    "mremap": (25, 216), "madvise": (28, 233), "msync": (26, 227), "mincore": (27, 232),
    "mlock": (149, 228), "mlock2": (325, 284), "munlock": (150, 229), "mlockall": (151, 230),
    "munlockall": (152, 231), "mbind": (237, 235), "get_mempolicy": (239, 236),
    "set_mempolicy": (238, 237), "pkey_alloc": (330, 289),
    "pkey_free": (331, 290), "pkey_mprotect": (329, 288), "mseal": (462, 462),
    "membarrier": (324, 283),
    # Threads, their scheduling and their locks.
    "exit": (60, 93), "exit_group": (231, 94), "futex": (202, 98), "futex_waitv": (449, 449),
    "futex_wake": (454, 454), "futex_wait": (455, 455), "futex_requeue": (456, 456),
    "set_robust_list": (273, 99), "set_tid_address": (218, 96), "rseq": (334, 293),
    "sched_yield": (24, 124), "sched_getaffinity": (204, 123), "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120), "sched_getattr": (315, 275),
    "sched_get_priority_max": (146, 125), "sched_get_priority_min": (147, 126),
    "sched_rr_get_interval": (148, 127), "getcpu": (309, 168), "getpriority": (140, 141),
    "gettid": (186, 178), "wait4": (61, 260), "waitid": (247, 95),
    # Its own signals, time and identity.
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "rt_sigpending": (127, 136), "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133),
    "sigaltstack": (131, 132), "restart_syscall": (219, 128), "pause": (34, None),
    "alarm": (37, None), "getitimer": (36, 102), "setitimer": (38, 103), "timer_create": (222, 107),
    "timer_settime": (223, 110), "timer_gettime": (224, 108), "timer_getoverrun": (225, 109),
    "timer_delete": (226, 111), "nanosleep": (35, 101), "clock_nanosleep": (230, 115),
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "gettimeofday": (96, 169),
    "time": (201, None), "times": (100, 153), "getrusage": (98, 165), "getrlimit": (97, 163),
    "sysinfo": (99, 179), "uname": (63, 160), "getrandom": (318, 278), "getpid": (39, 172),
    "getppid": (110, 173), "getpgrp": (111, None), "getpgid": (121, 155), "getsid": (124, 156),
    "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177),
    "getresuid": (118, 148), "getresgid": (120, 150), "getgroups": (115, 158), "capget": (125, 90),
}

# Refused by name (`EPERM`), so that the model's error says what happened.
REFUSED: Numbers = {
    # Other programs and other processes.
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, None), "vfork": (58, None),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "kcmp": (312, 272),
    "move_pages": (279, 239), "migrate_pages": (256, 238), "setpriority": (141, 140),
    "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    "ioprio_set": (251, 30), "setrlimit": (160, 164), "setsid": (112, 157), "setpgid": (109, 154),
    # The network, and sockets that others listen on.
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200),
    "listen": (50, 201), "accept": (43, 202), "accept4": (288, 242), "sendmmsg": (307, 269),
    "setsockopt": (54, 208),
    # Changing files by name: a second lock beside Landlock, and the only one for modes and times.
    "creat": (85, None), "truncate": (76, 45), "mkdir": (83, None), "mkdirat": (258, 34),
    "mknod": (133, None), "mknodat": (259, 33), "unlink": (87, None), "unlinkat": (263, 35),
    "rmdir": (84, None), "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276),
    "link": (86, None), "linkat": (265, 37), "symlink": (88, None), "symlinkat": (266, 36),
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "utimensat": (280, 88), "futimesat": (261, None),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "inotify_init": (253, None),
    "inotify_init1": (294, 26), "inotify_add_watch": (254, 27), "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    # The kernel itself.
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "open_tree": (428, 428), "mount_setattr": (442, 442), "setns": (308, 268),
    "unshare": (272, 97), "bpf": (321, 280), "perf_event_open": (298, 241), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "userfaultfd": (323, 282),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "syslog": (103, 116), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "clock_adjtime": (305, 266), "adjtimex": (159, 171), "sethostname": (170, 161),
    "setdomainname": (171, 162), "iopl": (172, None), "ioperm": (173, None),
    "modify_ldt": (154, None), "personality": (135, 92), "capset": (126, 91), "setuid": (105, 146),
    "setgid": (106, 144), "setreuid": (113, 145), "setregid": (114, 143), "setresuid": (117, 147),
    "setresgid": (119, 149), "setgroups": (116, 159), "setfsuid": (122, 151),
    "setfsgid": (123, 152), "seccomp": (317, 277), "vhangup": (153, 58), "shmget": (29, 194),
    "shmat": (30, 196), "shmctl": (31, 195), "shmdt": (67, 197), "semget": (64, 190),
    "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192), "msgget": (68, 186),
    "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187), "mq_open": (240, 180),
    "mq_unlink": (241, 181), "memfd_secret": (447, 447),
}

# Depends on the arguments: see the rules in `seccomp`.
CHECKED: Numbers = {
    "clone": (56, 220), "open": (2, None), "openat": (257, 56),
    "fcntl": (72, 25), "ioctl": (16, 29), "prctl": (157, 167), "arch_prctl": (158, None),
    "kill": (62, 129), "tgkill": (234, 131), "sendto": (44, 206), "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122), "memfd_create": (319, 279),
}
# fmt: on
