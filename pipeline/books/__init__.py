# SPDX-License-Identifier: Apache-2.0
"""What a job says it did, and the proof that it adds up. In: counts. Out: ledger entries and the manifest.

`quantities` lists what is counted and which of it must be equal. `ledger` holds one entry per committed split,
`shard_entry` one per merged shard; `equations` checks them, `job_sums` adds them up, and `manifest` writes it all down
for whoever reads the folder. A job whose books do not balance fails.
"""
