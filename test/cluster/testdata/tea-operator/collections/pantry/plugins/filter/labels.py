def labelled(sort):
    return "%s tea" % sort


class FilterModule(object):
    def filters(self):
        return {"labelled": labelled}
