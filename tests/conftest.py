"""What holds for every test."""

import signal

from hypothesis import settings

# A deadline would make a test depend on how busy the machine is.
settings.register_profile("rollcast", deadline=None)
settings.load_profile("rollcast")

# A shell that runs this in the background, or under nohup, has signals ignored, and processes inherit that. Those that the
# tests start shall have the signals of a terminal.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
