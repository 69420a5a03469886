# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""In place of scikit-learn, which every fairseq command imports for tasks that are not ours: a third of its start."""
