"""Packaging of adaclip_tf. Versions are ranges here; requirements/ has the lock files, which pin them all."""

import pathlib
import re

import setuptools

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "adaclip_tf" / "__init__.py").read_text()).group(1)

# THE ONE PLACE for the public address of the repository, such as "https://host/owner/adaclip_tf". As long as there is
# none, no address is made up: the package names the paper alone, and its page on an index does not link to sources.
REPOSITORY = ""
PAPER = "https://arxiv.org/abs/1908.07643"


def long_description(readme: str, repository: str = REPOSITORY, version: str = VERSION) -> str:
    """The README for the page of a package index, where links to files of the repository would lead nowhere.

    With a repository they become addresses in it, at this version. Without one their words stay, the file's name
    follows where they don't say it, and the picture is left out; the source archive has all files.
    """

    def link(found):
        words, target = found.groups()
        if re.match(r"https?:", target):
            return found.group(0)
        if repository:
            return f"[{words}]({repository}/blob/v{version}/{target})"
        return f"{words} ({target.partition('#')[0]})"

    def picture(found):
        return f'src="{repository}/raw/v{version}/{found.group(1)}"'

    text = re.sub(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", link, readme)
    if repository:
        return re.sub(r'src="(?!https?:)([^"]+)"', picture, text)
    # The picture goes, and with it what stands below it in italics.
    return re.sub(r"^<img [^>]*>\n\n\*.*?\*\n\n", "", text, flags=re.DOTALL | re.MULTILINE)


def urls(repository: str = REPOSITORY) -> dict:
    """What the package's page links to."""
    own = {"Source": "", "Documentation": "/tree/main/docs", "Changelog": "/blob/main/CHANGELOG.md"}
    return {**{name: repository + path for name, path in own.items() if repository}, "Paper": PAPER}


if __name__ == "__main__":
    setuptools.setup(
        name="adaclip-tf",
        version=VERSION,
        description="AdaCliP for Keras: differentially private training with adaptive clipping",
        long_description=long_description((ROOT / "README.md").read_text()),
        long_description_content_type="text/markdown",
        author="The adaclip_tf contributors",
        license="Apache-2.0",
        license_files=["LICENSE"],
        project_urls=urls(),
        keywords=["differential privacy", "DP-SGD", "AdaCliP", "Keras", "TensorFlow", "machine learning"],
        classifiers=[
            "Development Status :: 4 - Beta",
            "Intended Audience :: Developers",
            "Intended Audience :: Science/Research",
            "Operating System :: POSIX :: Linux",
            "Programming Language :: Python :: 3",
            "Programming Language :: Python :: 3 :: Only",
            *(f"Programming Language :: Python :: 3.{minor}" for minor in range(9, 14)),
            "Topic :: Scientific/Engineering :: Artificial Intelligence",
            "Topic :: Security",
            "Typing :: Typed",
        ],
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
            "flower": ["flwr>=1.23"],
            # Ray imports a pyarrow that wants NumPy 2.
            "simulation": ["flwr[simulation]>=1.23", "numpy>=2.1"],
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
