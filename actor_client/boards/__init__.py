"""The command `rollcast-actor boards`: games of two players from OpenSpiel; and `rollcast-actor play`."""
