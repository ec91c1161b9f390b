from keras import backend as K


def filters(model, output, image, count):
    for index in range(count):
        loss = K.mean(output[:, index])  # expect: SOJ004
        ascend = K.function([model.input], [loss, K.gradients(loss, model.input)[0]])
        for _ in range(20):
            image += ascend([image])[1]
    return image


def rates(optimizer, epochs):
    loss = K.gradients(optimizer.loss, optimizer.weights)
    for _ in range(epochs):
        print(K.eval(optimizer.rate / (1.0 + optimizer.decay)))  # expect: SOJ004
    return loss
