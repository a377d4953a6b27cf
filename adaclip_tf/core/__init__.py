"""placeholder"""

from adaclip_tf.core.framework import *  # noqa: F403
