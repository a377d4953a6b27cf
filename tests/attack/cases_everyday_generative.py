"""Models that make data: flows, diffusion, codebooks, critics with a penalty; and those that learn without labels."""

import numpy as np
import tensorflow as tf

from tests.attack.case import Apply, PerExample, Problem, case, copies, features, floats, mse, net, scce

L = tf.keras.layers


def _own(model, data, width=5):
    model(np.zeros((1, width), np.float32))
    return Problem(model, data, scce(), players=[(model.loss_of, model.trainable_variables)])


class Flow(tf.keras.Model):
    """RealNVP on four features: couplings, a permutation, an invertible matrix, a learned scale."""

    def __init__(self):
        super().__init__()
        self.nets = [tf.keras.Sequential([L.Dense(4, "tanh"), L.Dense(4)]) for _ in range(2)]
        self.mixing = self.add_weight(shape=(4, 4), initializer="orthogonal", name="mixing")
        self.log_scale = self.add_weight(shape=(4,), initializer="zeros", name="log_scale")

    def call(self, x):
        z, log_det = x[:, :4], tf.zeros_like(x[:, 0])
        z = z * tf.exp(tf.convert_to_tensor(self.log_scale))
        log_det += tf.reduce_sum(self.log_scale)
        for network in self.nets:
            first, second = tf.split(z, 2, axis=1)
            shift, log_scale = tf.split(network(first), 2, axis=1)
            log_scale = tf.tanh(log_scale)
            z = tf.concat([second * tf.exp(log_scale) + shift, first], axis=1)
            log_det += tf.reduce_sum(log_scale, axis=1)
        z = tf.matmul(z, tf.convert_to_tensor(self.mixing))
        log_det += tf.linalg.slogdet(tf.convert_to_tensor(self.mixing))[1]
        return z, log_det

    def loss_of(self, batch):
        z, log_det = self(batch[0])
        return 0.5 * tf.reduce_sum(z**2, 1) - log_det


@case("accepted", own_step_only=True)
def coupling_flow():
    return _own(Flow(), features())


@case("accepted")
def masked_autoregressive_density():
    """MADE: kernels times constant masks."""

    class Masked(L.Dense):
        def __init__(self, units, mask, **kwargs):
            super().__init__(units, **kwargs)
            self.mask_ = mask

        def call(self, x):
            return self.activation(tf.matmul(x, self.kernel * self.mask_) + self.bias)

    first = np.triu(np.ones((5, 5), np.float32))
    layers = [Masked(5, first, activation="tanh"), Masked(5, np.triu(np.ones((5, 5), np.float32), 1))]
    return net(layers, copies(), mse())


class Diffusion(tf.keras.Model):
    """Noise at a drawn time for each example, embedded by sines; the loss is the error in the noise."""

    def __init__(self):
        super().__init__()
        self.time, self.hidden, self.out = L.Dense(4, "swish"), L.Dense(4, "swish"), L.Dense(5)
        self.alphas = np.cumprod(1.0 - np.linspace(1e-2, 0.2, 10)).astype(np.float32)

    def call(self, x):
        return self.predict_noise(x, tf.zeros_like(x[:, 0], tf.int32))

    def predict_noise(self, x, step):
        angles = tf.cast(step, tf.float32)[:, None] * tf.exp(-tf.range(2.0))
        time = self.time(tf.concat([tf.sin(angles), tf.cos(angles)], -1))
        return self.out(self.hidden(tf.concat([x, time], -1)))

    def loss_of(self, batch):
        x = batch[0]
        step = tf.random.uniform([tf.shape(x)[0]], 0, 10, tf.int32)
        alpha = tf.gather(self.alphas, step)[:, None]
        noise = tf.random.normal(tf.shape(x))
        noised = tf.sqrt(alpha) * x + tf.sqrt(1.0 - alpha) * noise
        return tf.reduce_mean(tf.square(noise - self.predict_noise(noised, step)), -1)


@case("accepted", own_step_only=True, random=True)
def diffusion():
    return _own(Diffusion(), features())


@case("accepted")
def diffusion_at_given_times():
    """Times and noise come with the data; a table of alphas is looked up."""

    def data(rng, n):
        x = floats(rng, n, 5)
        return (x, rng.integers(0, 10, n), rng.normal(size=(n, 5)).astype(np.float32)), rng.integers(0, 3, n)

    class Model(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.denoiser = Diffusion()

        def call(self, inputs):
            x, step, noise = inputs
            step = tf.reshape(tf.cast(step, tf.int32), [-1])
            alpha = tf.gather(tf.constant(self.denoiser.alphas), step)[:, None]
            return noise - self.denoiser.predict_noise(tf.sqrt(alpha) * x + tf.sqrt(1.0 - alpha) * noise, step)

    return Problem(Model(), data, PerExample(lambda y, error: tf.reduce_mean(error**2, -1)))


class Codebook(L.Layer):
    """VQ-VAE with a codebook that is trained by its gradient."""

    def build(self, shape):
        self.codes = self.add_weight(shape=(6, shape[-1]), initializer="uniform", name="codes")

    def call(self, z):
        codes = tf.convert_to_tensor(self.codes)
        flat = tf.reshape(z, [-1, z.shape[-1]])
        distances = (
            tf.reduce_sum(flat**2, 1, keepdims=True)
            + tf.reduce_sum(codes**2, 1)
            - 2.0 * tf.matmul(flat, codes, transpose_b=True)
        )
        chosen = tf.argmin(distances, axis=1)
        quantised = tf.reshape(tf.matmul(tf.one_hot(chosen, 6), codes), tf.shape(z))
        commitment = tf.reduce_mean(tf.square(tf.stop_gradient(quantised) - z), [1, 2, 3])
        learning = tf.reduce_mean(tf.square(quantised - tf.stop_gradient(z)), [1, 2, 3])
        return z + tf.stop_gradient(quantised - z), 0.25 * commitment + learning


class Quantised(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.encode, self.book = L.Conv2D(3, 2, strides=2), Codebook()
        self.decode = L.Conv2DTranspose(1, 2, strides=2)

    def call(self, x):
        quantised, extra = self.book(self.encode(x))
        return self.decode(quantised) + 0.0 * extra[:, None, None, None]

    def loss_of(self, batch):
        quantised, extra = self.book(self.encode(batch[0]))
        return tf.reduce_mean(tf.square(self.decode(quantised) - batch[0]), [1, 2, 3]) + extra


@case("accepted", own_step_only=True)
def codebook_by_gradient():
    model = Quantised()
    model(np.zeros((1, 4, 4, 1), np.float32))
    return Problem(model, copies(4, 4, 1), mse(), players=[(model.loss_of, model.trainable_variables)])


@case("accepted", random=True)
def gumbel_softmax():
    """Categories drawn by Gumbel noise, straight through."""

    def draw(logits):
        gumbel = -tf.math.log(-tf.math.log(tf.random.uniform(tf.shape(logits), 1e-6, 1.0 - 1e-6)))
        soft = tf.nn.softmax((logits + gumbel) / 0.5)
        return soft + tf.stop_gradient(tf.one_hot(tf.argmax(soft, -1), logits.shape[-1]) - soft)

    return net([L.Dense(4), Apply(draw), L.Dense(5)], copies(), mse())


class Critic(tf.keras.Model):
    """WGAN-GP's critic: the gradient by its input, of each example by itself."""

    def __init__(self):
        super().__init__()
        self.hidden, self.out = L.Dense(4, "tanh"), L.Dense(1)

    def call(self, x):
        return self.out(self.hidden(x))

    def loss_of(self, batch):
        real = batch[0]
        fake = tf.reverse(real, [1])
        between = 0.3 * real + 0.7 * fake
        with tf.GradientTape() as tape:
            tape.watch(between)
            value = self(between)
        slope = tf.norm(tape.gradient(value, between) + 1e-3, axis=1)
        return self(fake)[:, 0] - self(real)[:, 0] + 10.0 * tf.square(slope - 1.0)


@case("accepted", own_step_only=True)
def critic_with_gradient_penalty():
    return _own(Critic(), features())


@case("accepted", own_step_only=True)
def bootstrapped_views():
    """BYOL: the target network is another one, whose weights are set between steps."""

    class Views(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.online = tf.keras.Sequential([L.Dense(4, "tanh"), L.LayerNormalization(), L.Dense(3)])
            self.predictor = L.Dense(3)
            self.target = tf.keras.Sequential([L.Dense(4, "tanh"), L.LayerNormalization(), L.Dense(3)])
            self.target.trainable = False

        def call(self, x):
            self.target(x)
            return self.predictor(self.online(x))

        def loss_of(self, batch):
            one, two = batch[0], batch[0] * tf.constant([1.0, 0.9, 1.1, 1.0, 0.8])
            prediction = tf.math.l2_normalize(self(one), -1)
            target = tf.stop_gradient(tf.math.l2_normalize(self.target(two), -1))
            return 2.0 - 2.0 * tf.reduce_sum(prediction * target, -1)

    return _own(Views(), features())


@case("accepted", random=True)
def masked_autoencoder():
    """Random patches of each image are left out, by the order of drawn numbers, and restored."""

    class Model(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.embed, self.block, self.out = L.Dense(4), L.MultiHeadAttention(2, 2), L.Dense(4)
            self.token = self.add_weight(shape=(1, 1, 4), name="token")

        def call(self, x):
            patches = tf.reshape(tf.image.extract_patches(x, [1, 2, 2, 1], [1, 2, 2, 1], [1] * 4, "VALID"), [-1, 4, 4])
            h = self.embed(patches)
            order = tf.argsort(tf.random.uniform([tf.shape(x)[0], 4]), axis=1)
            kept = tf.gather(h, order[:, :2], batch_dims=1)
            kept = kept + self.block(kept, kept)
            filled = tf.concat([kept, tf.repeat(tf.repeat(self.token, 2, axis=1), tf.shape(x)[0], axis=0)], 1)
            back = tf.gather(filled, tf.argsort(order, axis=1), batch_dims=1)
            return self.out(back + self.block(back, back))

    def data(rng, n):
        x = floats(rng, n, 4, 4, 1)
        y = x.reshape(n, 2, 2, 2, 2).transpose(0, 1, 3, 2, 4).reshape(n, 4, 4)
        return x, y

    return Problem(Model(), data, PerExample(lambda y, out: tf.reduce_mean(tf.square(y - out), [1, 2])))


@case("accepted")
def weights_made_by_a_network():
    """A hypernetwork: each example gets a kernel of its own."""

    def model(x):
        kernel = L.Reshape((5, 4))(L.Dense(20)(L.Dense(3, "tanh")(x)))
        h = Apply(lambda t: tf.einsum("bi,bij->bj", t[0], t[1]))([x, kernel])
        return L.Dense(3)(h)

    return net(model, features())


@case("accepted")
def modulated_by_a_condition():
    """FiLM and adaptive instance normalisation of images by a vector."""

    def model(inputs):
        image, condition = inputs
        h = L.Conv2D(3, 3, padding="same")(image)

        def styled(t):
            h, style = t
            mean, variance = tf.nn.moments(h, [1, 2], keepdims=True)
            scale, shift = tf.split(style[:, None, None], 2, axis=-1)
            return (h - mean) * tf.math.rsqrt(variance + 1e-3) * (1.0 + scale) + shift

        h = Apply(styled)([h, L.Dense(6)(condition)])
        return L.Dense(3)(L.GlobalAveragePooling2D()(L.ReLU()(h)))

    def data(rng, n):
        return (floats(rng, n, 4, 4, 1), floats(rng, n, 2)), rng.integers(0, 3, n)

    return net(model, data)


@case("accepted")
def deep_equilibrium():
    """A fixed number of rounds of one layer, by `tf.while_loop`."""

    class Rounds(L.Layer):
        def build(self, shape):
            self.inner = L.Dense(4)
            self.inner.build((None, 4))
            self.inject = L.Dense(4)
            self.inject.build(shape)

        def call(self, x):
            start = self.inject(x)

            def body(i, z):
                return i + 1, tf.tanh(self.inner(z) + start)

            return tf.while_loop(lambda i, z: i < 4, body, (0, tf.zeros_like(start)))[1]

    return net([Rounds(), L.Dense(3)], features())
