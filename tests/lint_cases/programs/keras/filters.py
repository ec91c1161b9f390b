from keras import backend as K


def filters(model, output, image, count):
    for index in range(count):
        loss = K.mean(output[:, index])  # expect: SOJ004
        ascend = K.function([model.input], [loss, K.gradients(loss, model.input)[0]])
        for _ in range(20):
            image += ascend([image])[1]
    return image
