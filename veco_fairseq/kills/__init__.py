# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Trainings that are killed at random moments, go on, and are compared with ones that nobody disturbed.

:mod:`corpus` makes data and starting models, :mod:`kinds` lists what is trained, :mod:`processes` starts and stops
it, :mod:`trials` plans and makes the kills, :mod:`comparison` tells every difference, :mod:`report` the table.
"""
