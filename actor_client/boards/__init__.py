"""The command `rollcast act boards`: games of two players from OpenSpiel; and `rollcast play`."""
