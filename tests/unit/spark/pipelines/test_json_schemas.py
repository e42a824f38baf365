"""Tests of schemas inferred from JSON values and extended later."""

from pyspark.sql.types import StructType

from lograft.spark.pipelines.json_schemas import extend_schema, find_changed_fields, infer_schema


def ddl(schema: StructType) -> str:
    return schema.simpleString().removeprefix("struct<").removesuffix(">")


def test_types_are_merged_over_all_records() -> None:
    values = [
        '{"id": 1, "price": 2, "ok": true, "tags": ["a"], "who": {"name": "x"}}',
        '{"id": 9223372036854775807, "price": 2.5, "tags": [], "who": {"age": 7}, "note": null}',
        "not json",
        "[1]",
    ]
    assert ddl(infer_schema(values)) == (
        "id:bigint,price:double,ok:boolean,tags:array<string>,"
        "who:struct<name:string,age:bigint>,note:string"
    )


def test_fields_of_varying_type_become_text() -> None:
    assert ddl(infer_schema(['{"a": 1, "b": [1]}', '{"a": "x", "b": {}}'])) == "a:string,b:string"


def test_numbers_that_a_double_would_round_become_text() -> None:
    assert ddl(infer_schema(['{"id": 9223372036854775808}', '{"id": 1}'])) == "id:string"
    assert ddl(infer_schema(['{"id": -9223372036854775808}'])) == "id:bigint"


def test_field_names_are_case_insensitive() -> None:
    values = ['{"Id": 1, "who": {"Name": "x", "name": "y"}}', '{"id": "two"}']
    assert ddl(infer_schema(values)) == "Id:bigint,who:struct<Name:string>"


def test_deeply_nested_values_become_text_or_are_ignored() -> None:
    deep = '{"a":' * 60 + "1" + "}" * 60
    assert ddl(infer_schema([deep])).endswith("a:string" + ">" * 50)
    assert ddl(infer_schema(["[" * 100_000, '{"id": 1}'])) == "id:bigint"


def test_new_fields_are_appended_and_old_ones_keep_their_types() -> None:
    known = infer_schema(['{"id": 1, "who": {"name": "x"}}'])
    seen = infer_schema(['{"ID": "one", "who": {"age": 7}, "price": 0.5}'])
    assert (
        ddl(extend_schema(known, seen))
        == "id:bigint,who:struct<name:string,age:bigint>,price:double"
    )


def test_fields_of_incompatible_type_are_reported() -> None:
    known = infer_schema(['{"id": 1, "gone": 1, "who": {"name": "x", "age": 7}}'])
    assert (
        find_changed_fields(
            known, infer_schema(['{"ID": 1, "new": 1, "who": {"name": "x", "new": 1}}'])
        )
        == []
    )
    other = infer_schema(['{"id": "x", "who": {"age": "x"}}'])
    assert find_changed_fields(known, other) == ["id", "who.age"]
    assert find_changed_fields(known, infer_schema(['{"who": 1}'])) == ["who"]
