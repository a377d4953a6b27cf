"""Packaging of adaclip_tf. Versions are ranges here; requirements/ has the lock files, which pin them all."""

import pathlib
import re

import setuptools

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "adaclip_tf" / "__init__.py").read_text()).group(1)

setuptools.setup(
    name="adaclip-tf",
    version=VERSION,
    description="AdaCliP for Keras: differentially private training with adaptive clipping",
    long_description=(ROOT / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=setuptools.find_packages(include=["adaclip_tf", "adaclip_tf.*"]),
    package_data={"adaclip_tf": ["py.typed"]},
    python_requires=">=3.9,<3.14",
    entry_points={"console_scripts": ["adaclip-privacy = adaclip_tf.privacy.__main__:run"]},
    install_requires=[
        "absl-py",
        "dp-accounting>=0.4.3",
        "matplotlib",
        "numpy>=1.23",
        "scipy",
        "tensorflow>=2.15",
    ],
    extras_require={
        # pip refuses tensorflow-privacy on Python 3.12 and later.
        "privacy": ["tensorflow-privacy==0.9.0; python_version < '3.12'"],
        "tensorboard": ["tensorboard", "setuptools<81"],
        "keras2": ["numpy<2", "tensorflow==2.15.*", "tensorflow-privacy==0.9.0"],
        "examples": [
            "importlib-resources",
            "ml_collections",
            "scikit-learn",
            "tensorboard",
            "tensorflow-datasets",
            "tqdm",
        ],
    },
)
