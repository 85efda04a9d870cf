# SPDX-License-Identifier: Apache-2.0
"""What a job says it did, and the proof that it adds up. In: counts. Out: ledger entries and the manifest.

    reader --\
    encoder ---> counts.Counts --> ledger.LedgerEntry --> job_books.JobBooks --> manifest
    writer --/   one per split     one per split          their sum               of the job

- `counts`: what is counted of a file, a split, a job; `quantities`: the names, and which must be equal;
- `ledger`: one entry per committed split, and one per merged shard, with the `sums` of its documents;
- `job_books` finds the entries of a plan, checks each, adds them up and checks the totals;
- `manifest`: the summary of a finished job; `lists`: its long lists in files;
- `parts`: the folders of an output in parts, and the books of all of them together;
- `job_record`: which job a folder belongs to; `reject_limits`: when too much of a job, or of a file, is rejected.

A job whose books do not balance fails.
"""
