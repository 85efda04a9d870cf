# SPDX-License-Identifier: Apache-2.0
"""What a job is asked to do. In: a YAML file and overrides. Out: a checked `job.Config`, or every mistake at once.

::

    job.yaml, --set key=value --file.load_config--> a tree --sections, then the rules between them--> job.Config

`input`, `text`, `tokenizer` and `output` have the sections, `sections` what these share; `job` has the rules
between them. `formats` lists what can be read; `kept_fields` settles the types of fields that are stored. All of it is
checked before anything is read or written.
"""
