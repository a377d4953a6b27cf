"""More of what people do to images: windows, masks, grids, detectors, losses per picture."""

import numpy as np
import tensorflow as tf

from tests.attack.case import Apply, PerExample, Problem, case, copies, features, floats, net, scce

L = tf.keras.layers


def _head(h):
    return L.Dense(3)(L.GlobalAveragePooling2D()(h))


@case("accepted", fast=("graph",))
def shifted_windows():
    """Swin: windows become rows of the batch, attend within, and go back; shifted by a roll of the picture."""

    class Windows(L.Layer):
        def __init__(self, shift):
            super().__init__()
            self.shift, self.attend = shift, L.MultiHeadAttention(2, 2)

        def call(self, x):
            h, w, c = x.shape[1:]
            x = tf.roll(x, [-self.shift] * 2, axis=[1, 2])
            parts = tf.reshape(x, [-1, h // 2, 2, w // 2, 2, c])
            parts = tf.reshape(tf.transpose(parts, [0, 1, 3, 2, 4, 5]), [-1, 4, c])
            parts = self.attend(parts, parts)
            parts = tf.reshape(parts, [-1, h // 2, w // 2, 2, 2, c])
            back = tf.reshape(tf.transpose(parts, [0, 1, 3, 2, 4, 5]), [-1, h, w, c])
            return tf.roll(back, [self.shift] * 2, axis=[1, 2])

    def model(x):
        h = L.Conv2D(4, 1)(x)
        for shift in (0, 1):
            h = L.Add()([h, Windows(shift)(L.LayerNormalization()(h))])
        return _head(h)

    return net(model, features(4, 4, 1))


@case("accepted", random=True)
def drop_path_per_example():
    """Stochastic depth: a draw for each example."""

    class DropPath(L.Layer):
        def call(self, x, training=None):
            keep = tf.floor(0.8 + tf.random.uniform([tf.shape(x)[0], 1, 1, 1]))
            return x / 0.8 * keep if training else x

    def model(x):
        h = L.Conv2D(3, 1)(x)
        return _head(L.Add()([h, DropPath()(L.Conv2D(3, 3, padding="same", activation="relu")(h))]))

    return net(model, features(4, 4, 1))


@case("accepted", random=True)
def drop_path_of_the_batch():
    """One public draw for all: no example has a say in it."""

    class DropPath(L.Layer):
        def call(self, x, training=None):
            return x * tf.cast(tf.random.uniform([]) > 0.1, x.dtype) if training else x

    def model(x):
        h = L.Conv2D(3, 1)(x)
        return _head(L.Add()([h, DropPath()(L.Conv2D(3, 3, padding="same", activation="relu")(h))]))

    return net(model, features(4, 4, 1))


@case("accepted")
def coordinates_as_channels():
    """CoordConv: a grid, repeated for each example."""

    def with_grid(x):
        batch = tf.shape(x)[0]
        rows = tf.tile(tf.linspace(-1.0, 1.0, 4)[None, :, None, None], [batch, 1, 4, 1])
        columns = tf.tile(tf.linspace(-1.0, 1.0, 4)[None, None, :, None], [batch, 4, 1, 1])
        return tf.concat([x, rows, columns], -1)

    return net(lambda x: _head(L.Conv2D(3, 3, activation="relu")(Apply(with_grid)(x))), features(4, 4, 1))


@case("accepted")
def sub_pixels():
    return net([L.Conv2D(4, 3, padding="same"), Apply(lambda x: tf.nn.depth_to_space(x, 2))], _upsampled, _pixels())


def _upsampled(rng, n):
    return floats(rng, n, 4, 4, 1), floats(rng, n, 8, 8, 1)


def _pixels():
    return PerExample(lambda y, out: tf.reduce_mean(tf.abs(y - out), [1, 2, 3]))


@case("accepted")
def similarity_of_pictures():
    """Structural similarity and total variation of each picture."""

    def loss(y, out):
        return 1.0 - tf.image.ssim(y, out, 2.0, filter_size=3) + 1e-2 * tf.image.total_variation(out)

    def data(rng, n):
        x = 1.0 / (1.0 + np.exp(-floats(rng, n, 8, 8, 1)))
        return x, x

    return net([L.Conv2D(3, 3, padding="same", activation="relu"), L.Conv2D(1, 1)], data, PerExample(loss))


@case("accepted")
def edges_of_pictures():
    def loss(y, out):
        return tf.reduce_mean(tf.abs(tf.image.sobel_edges(y) - tf.image.sobel_edges(out)), [1, 2, 3, 4])

    return net([L.Conv2D(3, 3, padding="same", activation="relu"), L.Conv2D(1, 1)], copies(5, 5, 1), PerExample(loss))


@case("accepted")
def features_of_a_fixed_network():
    """A perceptual loss, through convolutions that are not trained."""
    fixed = tf.keras.Sequential([L.Conv2D(3, 3, activation="relu", input_shape=(5, 5, 1)), L.Conv2D(2, 2)])
    fixed.trainable = False

    def loss(y, out):
        return tf.reduce_mean(tf.square(fixed(y) - fixed(out)), [1, 2, 3])

    return net([L.Conv2D(3, 3, padding="same", activation="relu"), L.Conv2D(1, 1)], copies(5, 5, 1), PerExample(loss))


@case("accepted")
def lovasz_hinge():
    """Errors sorted within each picture."""

    def loss(y, logits):
        y, logits = (tf.reshape(t, [-1, 16]) for t in (y, logits))
        errors = 1.0 - (2.0 * y - 1.0) * logits
        order = tf.argsort(errors, direction="DESCENDING")
        errors, truth = tf.gather(errors, order, batch_dims=1), tf.gather(y, order, batch_dims=1)
        total = tf.reduce_sum(truth, -1, keepdims=True)
        jaccard = 1.0 - (total - tf.cumsum(truth, 1)) / (total + tf.cumsum(1.0 - truth, 1))
        steps = tf.concat([jaccard[:, :1], jaccard[:, 1:] - jaccard[:, :-1]], 1)
        return tf.reduce_sum(tf.nn.relu(errors) * tf.stop_gradient(steps), -1)

    def data(rng, n):
        return floats(rng, n, 4, 4, 1), rng.integers(0, 2, (n, 4, 4, 1)).astype(np.float32)

    return net([L.Conv2D(3, 3, padding="same", activation="relu"), L.Conv2D(1, 1)], data, PerExample(loss))


@case("accepted")
def boxes_and_classes():
    """A detector's head on a grid: classes everywhere, boxes where something is, over the picture's own count."""

    def loss(y, out):
        there = y[..., 0]
        classes = tf.nn.sigmoid_cross_entropy_with_logits(there, out[..., 0])
        boxes = tf.reduce_sum(tf.abs(y[..., 1:] - out[..., 1:]), -1) * there
        count = tf.maximum(tf.reduce_sum(there, [1, 2]), 1.0)
        return (tf.reduce_sum(classes, [1, 2]) + tf.reduce_sum(boxes, [1, 2])) / count

    def data(rng, n):
        y = floats(rng, n, 4, 4, 5)
        y[..., 0] = rng.integers(0, 2, (n, 4, 4))
        return floats(rng, n, 4, 4, 1), y

    return net([L.Conv2D(3, 3, padding="same", activation="relu"), L.Conv2D(5, 1)], data, PerExample(loss))


@case("accepted")
def learned_queries():
    """DETR: queries that all examples share attend to the picture; boxes matched in their order."""

    class Queries(L.Layer):
        def __init__(self):
            super().__init__()
            self.attend, self.out = L.MultiHeadAttention(2, 2), L.Dense(3)
            self.queries = self.add_weight(shape=(1, 3, 4), name="queries")

        def call(self, x):
            memory = tf.reshape(x, [tf.shape(x)[0], -1, 4])
            queries = tf.tile(self.queries, [tf.shape(x)[0], 1, 1])
            return tf.reduce_mean(self.out(queries + self.attend(queries, memory)), 1)

    return net([L.Conv2D(4, 2), Queries()], features(4, 4, 1))


@case("accepted", infinite=False)
def spatial_transformer():
    """A grid for each example, looked up by its own rows (gather_nd with the example's number, batch_dims=1)."""

    def sampled(t):
        x, theta = t
        grid = tf.stack(tf.meshgrid(tf.linspace(-1.0, 1.0, 4), tf.linspace(-1.0, 1.0, 4)), -1)
        grid = tf.concat([tf.reshape(grid, [16, 2]), tf.ones([16, 1])], -1)
        where = tf.einsum("bij,gj->bgi", tf.reshape(theta, [-1, 2, 3]), grid)
        where = tf.clip_by_value((where + 1.0) * 1.5, 0.0, 3.0)
        low = tf.floor(where)
        part = where - low
        low = tf.cast(low, tf.int32)
        high = tf.minimum(low + 1, 3)

        def pick(rows, columns):
            return tf.gather_nd(x, tf.stack([rows, columns], -1), batch_dims=1)

        a, b = pick(low[..., 1], low[..., 0]), pick(low[..., 1], high[..., 0])
        c, d = pick(high[..., 1], low[..., 0]), pick(high[..., 1], high[..., 0])
        right, down = part[..., :1], part[..., 1:]
        mixed = (a * (1 - right) + b * right) * (1 - down) + (c * (1 - right) + d * right) * down
        return tf.reshape(mixed, [-1, 4, 4, 1])

    def model(x):
        theta = L.Dense(6, bias_initializer=lambda s, dtype=None, **k: tf.constant([1.0, 0, 0, 0, 1, 0]))(
            L.Dense(3, "tanh")(L.Flatten()(x))
        )
        return _head(L.Conv2D(3, 2, activation="relu")(Apply(sampled)([x, theta])))

    return net(model, features(4, 4, 1))


@case("accepted", infinite=False)
def regions_cropped():
    """`crop_and_resize` with the example's own number for each box: a number that hangs on the place in the batch."""

    def crop(t):
        x, boxes = t
        return tf.image.crop_and_resize(x, boxes, tf.range(tf.shape(x)[0]), [3, 3])

    def data(rng, n):
        corners = rng.uniform(0, 0.4, (n, 2))
        return (floats(rng, n, 5, 5, 1), np.concatenate([corners, corners + 0.5], 1).astype(np.float32)), rng.integers(
            0, 3, n
        )

    return net(lambda t: L.Dense(3)(L.Flatten()(Apply(crop)(list(t)))), data)


@case("accepted")
def standardised_weights():
    """Weight standardisation and group normalisation, instead of batch normalisation."""

    class Standardised(L.Conv2D):
        def call(self, x):
            mean, variance = tf.nn.moments(tf.convert_to_tensor(self.kernel), [0, 1, 2], keepdims=True)
            return tf.nn.conv2d(x, (self.kernel - mean) * tf.math.rsqrt(variance + 1e-4), 1, "SAME") + self.bias

    return net(
        lambda x: _head(L.ReLU()(L.GroupNormalization(2)(Standardised(4, 3, padding="same")(x)))), features(4, 4, 1)
    )


@case("accepted")
def blurred_pooling():
    kernel = tf.constant(np.outer([1, 2, 1], [1, 2, 1])[:, :, None, None].repeat(3, 2) / 16.0, tf.float32)

    def blur(x):
        return tf.nn.depthwise_conv2d(x, kernel, [1, 2, 2, 1], "SAME")

    return net(lambda x: _head(Apply(blur)(L.Conv2D(3, 3, padding="same", activation="relu")(x))), features(6, 6, 1))


@case("accepted")
def local_response_normalisation():
    layers = [L.Conv2D(4, 3, activation="relu"), Apply(lambda x: tf.nn.local_response_normalization(x, 2))]
    return net(lambda x: _head(layers[1](layers[0](x))), features(5, 5, 1))


@case("accepted")
def pictures_standardised():
    return net(
        lambda x: _head(L.Conv2D(3, 3, activation="relu")(Apply(tf.image.per_image_standardization)(x))),
        features(5, 5, 1),
    )


@case("accepted")
def attention_over_regions_of_a_bag():
    """Many patches of one patient: attention-based multiple instance learning."""

    def model(x):
        h = L.TimeDistributed(L.Dense(4, "relu"))(x)
        gate = L.Multiply()([L.Dense(3, "tanh")(h), L.Dense(3, "sigmoid")(h)])
        weights = L.Softmax(axis=1)(L.Dense(1)(gate))
        return L.Dense(3)(Apply(lambda t: tf.reduce_sum(t[0] * t[1], 1))([weights, h]))

    return net(model, features(6, 5))


@case("accepted")
def pyramids_of_pictures():
    """Pyramid pooling (PSPNet) and atrous pooling (ASPP), resized back."""

    def model(x):
        h = L.Conv2D(3, 3, padding="same", activation="relu")(x)
        parts = [h]
        for size in (2, 4):
            pooled = L.Conv2D(2, 1)(L.AveragePooling2D(size)(h))
            parts.append(L.UpSampling2D(size, interpolation="bilinear")(pooled))
        for rate in (2, 3):
            parts.append(L.Conv2D(2, 3, padding="same", dilation_rate=rate)(h))
        return L.Conv2D(3, 1)(L.Concatenate()(parts))

    def data(rng, n):
        return floats(rng, n, 8, 8, 1), rng.integers(0, 3, (n, 8, 8))

    loss = PerExample(
        lambda y, out: tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(y, tf.int32), out), [1, 2])
    )
    return net(model, data, loss)


@case("accepted")
def attention_gates():
    """Attention U-Net: skip connections weighed by a gate."""

    def model(x):
        one = L.Conv2D(3, 3, padding="same", activation="relu")(x)
        two = L.Conv2D(4, 3, padding="same", activation="relu")(L.MaxPooling2D()(one))
        gate = L.Conv2D(1, 1, activation="sigmoid")(
            L.ReLU()(L.Add()([L.Conv2D(2, 1)(one), L.UpSampling2D()(L.Conv2D(2, 1)(two))]))
        )
        joined = L.Concatenate()([L.Multiply()([one, gate]), L.Conv2DTranspose(3, 2, strides=2)(two)])
        return _head(L.Conv2D(3, 3, activation="relu")(joined))

    return net(model, features(4, 4, 1))


@case("accepted")
def axial_attention():
    """Rows and columns of the picture become the batch in turn."""

    class Axis(L.Layer):
        def __init__(self, axis):
            super().__init__()
            self.axis, self.attend = axis, L.MultiHeadAttention(2, 2)

        def call(self, x):
            if self.axis:
                x = tf.transpose(x, [0, 2, 1, 3])
            h, w, c = x.shape[1:]
            flat = tf.reshape(x, [tf.shape(x)[0] * h, w, c])
            out = tf.reshape(self.attend(flat, flat), [-1, h, w, c])
            return tf.transpose(out, [0, 2, 1, 3]) if self.axis else out

    def model(x):
        h = L.Conv2D(4, 1)(x)
        return _head(Axis(1)(Axis(0)(h)))

    return net(model, features(4, 3, 1))


@case("accepted")
def slots_by_attention():
    """Slot attention: slots compete for places, by a softmax over slots, in three rounds of a GRU cell."""

    class Slots(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.key, self.value, self.query = L.Dense(4), L.Dense(4), L.Dense(4)
            self.cell, self.start, self.out = L.GRUCell(4), self.add_weight(shape=(1, 2, 4), name="start"), L.Dense(3)

        def call(self, x):
            keys, values = self.key(x), self.value(x)
            slots = tf.repeat(self.start, tf.shape(x)[0], axis=0)
            for _ in range(2):
                weights = tf.nn.softmax(tf.einsum("bsd,bnd->bsn", self.query(slots), keys), axis=1) + 1e-6
                weights = weights / tf.reduce_sum(weights, -1, keepdims=True)
                updates = tf.einsum("bsn,bnd->bsd", weights, values)
                flat, _ = self.cell(tf.reshape(updates, [-1, 4]), [tf.reshape(slots, [-1, 4])])
                slots = tf.reshape(flat, [-1, 2, 4])
            return self.out(tf.reduce_max(slots, 1))

    return Problem(Slots(), features(5, 3), scce())
