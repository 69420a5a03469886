# Copyright (c) The veco_fairseq authors.
# This source code is licensed under the MIT license found in the LICENSE file.
"""Packaging: ``pip install .`` ships the plug-in with all its subpackages, and no tests."""

from pathlib import Path

from setuptools import find_packages, setup

README = Path(__file__).with_name("README.md")

setup(
    name="veco_fairseq",
    version="0.1.0",
    description="VECO (ACL 2021), cross-lingual pre-training with a plug-in cross-attention, for fairseq",
    long_description=README.read_text(encoding="utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
    license="MIT",
    packages=find_packages(include=["veco_fairseq", "veco_fairseq.*"]),
    # fairseq-fixed imports from Python 3.11 on, and omegaconf 2.3, which it pins, was tried up to 3.13.
    python_requires=">=3.11,<3.14",
    install_requires=[
        # fairseq's last state with default factories; compat.py changes parts of exactly this version.
        "fairseq-fixed==0.12.3.1",
        # from 2.6 on, torch.load reads tensors and plain values alone, and allowed types can be named.
        "torch>=2.6",
        "numpy",
        # from 0.2.3 on, it tells which characters a piece stands for as return_type="proto".
        "sentencepiece>=0.2.3",
        "protobuf",
        "sacrebleu",
        "sacremoses",
        "safetensors",
        "matplotlib",
        "tqdm",
    ],
    extras_require={
        "test": ["ctranslate2", "pytest", "pytest-xdist", "tensorboardX", "transformers"],
        "fast": ["ctranslate2"],
        "gpu": ["liger-kernel>=0.8.5"],
        "retrieval": ["faiss-cpu"],
        "tensorboard": ["tensorboardX"],
    },
)
