"""The quick ways from keys and values, or from values alone, to a batch."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.protocol import record_batch


@given(
    pairs=st.lists(
        st.tuples(st.binary(max_size=200), st.none() | st.binary(max_size=200)), min_size=1
    ),
    codec=st.integers(0, 4),
    producer=st.none() | st.tuples(st.integers(0, 2**62), st.integers(0, 32_000)),
)
def test_the_quick_way_to_a_batch_gives_what_the_general_way_gives(pairs, codec, producer):
    quick = record_batch.build_pairs(pairs, 7, 3, 1_700_000_000_000, codec, producer)
    producer_id, producer_epoch = producer or (-1, -1)
    general = record_batch.build(
        [record_batch.Record(key, value, (), 1_700_000_000_000) for key, value in pairs],
        base_offset=7,
        leader_epoch=3,
        compression=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=0,
        is_transactional=producer is not None,
    )
    assert quick == general


@given(values=st.lists(st.binary(max_size=600), min_size=1))
def test_the_quick_way_for_values_alone_gives_what_the_general_way_gives(values):
    quick = record_batch.build_values(values, base_offset=7, leader_epoch=3, wall_ms=1_700)
    records = [record_batch.Record(None, value, (), 1_700) for value in values]
    assert quick == record_batch.build(records, base_offset=7, leader_epoch=3)
