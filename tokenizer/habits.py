# SPDX-License-Identifier: Apache-2.0
"""What people type from habit, of other libraries, and what a `Tokenizer` has for it."""

from collections.abc import Mapping

_INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("tokenize", "encode_as_pieces", "EncodeAsPieces"), "encode(text).tokens"),
    **dict.fromkeys(("encode_ordinary", "encode_as_ids", "EncodeAsIds", "encode_plus"), "encode(text).ids"),
    **dict.fromkeys(("encode_ordinary_batch", "batch_encode_plus", "batch_encode"), "encode_batch(texts)"),
    **dict.fromkeys(("batch_decode", "decode_bytes_batch"), "decode_batch(rows)"),
    **dict.fromkeys(("decode_ids", "DecodeIds", "decode_pieces", "decode_tokens", "detokenize"), "decode(ids)"),
    **dict.fromkeys(("vocab_size", "n_vocab", "piece_size", "get_piece_size", "GetPieceSize"), "get_vocab_size()"),
    **dict.fromkeys(("vocab", "get_vocabulary"), "get_vocab()"),
    **dict.fromkeys(("convert_tokens_to_ids", "piece_to_id", "PieceToId", "encode_single_token"), "token_to_id(token)"),
    **dict.fromkeys(("convert_ids_to_tokens", "id_to_piece", "IdToPiece"), "id_to_token(id)"),
    **dict.fromkeys(("save_pretrained", "save_model"), 'save("FOLDER/tokenizer.json")'),
}
"""Name in another library -> what to type."""
_OF_HF = (
    "pad", "apply_chat_template", "chat_template", "model_max_length", "padding_side", "all_special_ids",
    "all_special_tokens", "special_tokens_map", "is_fast", "prepare_for_model", "build_inputs_with_special_tokens",
)  # fmt: skip
_ROLES = ("pad", "unk", "bos", "eos", "cls", "sep", "mask")


def missing(name: str) -> str:
    """Returns the message of an AttributeError of a `Tokenizer`."""
    said = f"'Tokenizer' object has no attribute {name!r}"
    if name in _INSTEAD:
        return f"{said}; type {_INSTEAD[name]}"
    role = name.removesuffix("_id").removesuffix("_token")
    if name in _OF_HF or (role != name and role in _ROLES):
        return f"{said}; a tokenizer of transformers has it: type as_hf().{name}"
    return said
