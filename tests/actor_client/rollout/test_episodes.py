"""Tests the records of finished episodes."""

import numpy as np
import pytest
from rollcast.enums import Purpose, SegmentEnd

from actor_client.rollout.episodes import EpisodeRecord, EpisodeRecords

RECORD = EpisodeRecord(
    agent=2**33 + 5,
    env=2,
    episode=9,
    total=4.5,
    group_total=0.0,
    length=3,
    end=SegmentEnd.TRUNCATED,
    last_reward=0.5,
    last_group_reward=0.0,
    first_version=6,
    last_version=7,
    settings_revision=1,
)
BEYOND = 1e39


def test_an_evaluation_tells_more_of_the_same_record() -> None:
    """An evaluation has the columns of training plus seed, assignment, purpose and infos."""
    other = RECORD._replace(episode=10, seed=2**40, infos={"wins": 1.0})
    trained = EpisodeRecords([RECORD, other], grouped=False)
    played = EpisodeRecords([RECORD, other], assignment=12, grouped=False)
    columns, more = trained.columns(), played.columns()
    for name, values in columns.items():
        assert values.dtype == more[name].dtype
        assert values.tolist() == more[name].tolist()
    assert columns["episode/agent"].tolist() == [2**33 + 5] * 2
    assert {name: more[name].tolist() for name in more.keys() - columns.keys() - {"info/wins"}} == {
        "episode/seed": [0, 2**40],
        "episode/assignment": [12, 12],
        "episode/purpose": [Purpose.EVALUATE] * 2,
    }
    assert np.array_equal(more["info/wins"], np.array([np.nan, 1.0], np.float32), equal_nan=True)
    assert trained.info_names == []
    assert played.info_names == ["wins"]


def test_a_row_is_as_long_as_it_says() -> None:
    """The estimated size of a chunk equals the size of a row of all columns without infos."""
    for table in (EpisodeRecords([RECORD], grouped=True), EpisodeRecords([RECORD], assignment=1, grouped=True)):
        assert table.column_bytes == sum(values.nbytes for values in table.columns().values())


@pytest.mark.parametrize("record", [RECORD._replace(group_total=1.0), RECORD._replace(last_group_reward=-1.0)])
def test_columns_of_groups_stand_where_groups_are(record: EpisodeRecord) -> None:
    """Group columns are left out for a behavior without groups, unless a record has values for them."""
    names = {"episode/group_return", "episode/last_group_reward"}
    assert not names & EpisodeRecords([RECORD], grouped=False).columns().keys()
    assert names <= EpisodeRecords([RECORD], grouped=True).columns().keys()
    assert names <= EpisodeRecords([record], grouped=False).columns().keys()


def test_a_return_that_no_column_can_hold_is_known() -> None:
    """Returns beyond float32, infinite and NaN are recognized as not finite."""
    assert RECORD.is_finite
    assert RECORD._replace(total=float(np.finfo(np.float32).max)).is_finite
    for value in (BEYOND, -BEYOND, float("inf"), float("nan")):
        assert not RECORD._replace(total=value).is_finite
        assert not RECORD._replace(group_total=value).is_finite
        assert not RECORD._replace(last_reward=value).is_finite
